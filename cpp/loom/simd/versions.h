// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Kernels in files that are compiled once for each instruction set, and the one place that chooses
// among them. Such a file (loom_simd_sources() in cmake/LoomSimd.cmake) puts its functions into the
// namespace LOOM_SIMD, which is scalar, neon, avx2, avx512 or avx512_bf16; its header says
//
//     LOOM_SIMD_VERSIONS(scale, void(float* values, std::int64_t count) noexcept);
//
// which makes `scale(values, count)` the version for simd_level(), and scale.of(SimdLevel::kAvx2)
// that one. Overloads and templates are declared with LOOM_SIMD_DECLARE, and their versions are
//
//     template <class T>
//     inline constexpr simd::Versions scale{LOOM_SIMD_LIST(scale<T>)};
//
// What is of no use without an instruction set has one version, for that:
//
//     LOOM_SIMD_FROM(avx512_bf16, multiply, void(...) noexcept);
//
// It is called directly, where available() was asked before. Files for an instruction set include
// little and define nothing outside their namespace: the linker keeps one of all equal inline
// functions, which might be one for wider instructions than the processor has. Thread: any.

#include "loom/base/simd_level.h"

#include <type_traits>

namespace loom::simd {

template <class Signature>
class Versions;

template <class Result, class... Argument>
class Versions<Result(Argument...) noexcept> {
 public:
  using Function = Result (*)(Argument...) noexcept;

  /// Null for what the build's processors do not have.
  constexpr Versions(Function scalar, Function neon, Function avx2, Function avx512) noexcept
      : functions_{scalar, neon, avx2, avx512} {}

  /// The version for an instruction set. Requires: the processor has it.
  [[nodiscard]] constexpr Function of(SimdLevel level) const noexcept {
    return functions_[static_cast<int>(vectors_of(level))];
  }
  Result operator()(Argument... arguments) const noexcept { return of(simd_level())(arguments...); }

 private:
  Function functions_[4];
};

// The first one exists everywhere, others may be null.
template <class Result, class... Argument, class... Others>
Versions(Result (*)(Argument...) noexcept, Others...) -> Versions<Result(Argument...) noexcept>;

template <class Signature>
class SingleVersion;

template <class Result, class... Argument>
class SingleVersion<Result(Argument...) noexcept> {
 public:
  using Function = Result (*)(Argument...) noexcept;

  constexpr SingleVersion(SimdLevel least, Function function) noexcept
      : least_(least), function_(function) {}

  /// Whether simd_level() has it.
  [[nodiscard]] bool available() const noexcept { return simd_level() >= least_; }
  /// Requires: the processor has the instruction set; beside tests and benchmarks, available().
  Result operator()(Argument... arguments) const noexcept { return function_(arguments...); }

 private:
  SimdLevel least_;
  Function function_;  // null in builds for other processors
};

}  // namespace loom::simd

/// Declares something in the namespace of each instruction set, and the versions of a function.
#if defined(__x86_64__)
#define LOOM_SIMD_DECLARE(...) \
  namespace scalar {           \
  __VA_ARGS__                  \
  }                            \
  namespace avx2 {             \
  __VA_ARGS__                  \
  }                            \
  namespace avx512 {           \
  __VA_ARGS__                  \
  }
#define LOOM_SIMD_LIST(name) &scalar::name, nullptr, &avx2::name, &avx512::name
#elif defined(__aarch64__)
#define LOOM_SIMD_DECLARE(...) \
  namespace scalar {           \
  __VA_ARGS__                  \
  }                            \
  namespace neon {             \
  __VA_ARGS__                  \
  }
#define LOOM_SIMD_LIST(name) &scalar::name, &neon::name, nullptr, nullptr
#else
#define LOOM_SIMD_DECLARE(...) \
  namespace scalar {           \
  __VA_ARGS__                  \
  }
#define LOOM_SIMD_LIST(name) &scalar::name, nullptr, nullptr, nullptr
#endif

#define LOOM_SIMD_VERSIONS(name, ...)                        \
  LOOM_SIMD_DECLARE(std::type_identity_t<__VA_ARGS__> name;) \
  inline constexpr ::loom::simd::Versions<__VA_ARGS__> name { LOOM_SIMD_LIST(name) }

/// A function that exists from an instruction set on, avx512 or avx512_bf16.
#if defined(__x86_64__)
#define LOOM_SIMD_FROM(set, name, ...)                             \
  namespace set {                                                  \
  std::type_identity_t<__VA_ARGS__> name;                          \
  }                                                                \
  inline constexpr ::loom::simd::SingleVersion<__VA_ARGS__> name { \
    LOOM_SIMD_LEVEL_##set, &set::name                              \
  }
#else
#define LOOM_SIMD_FROM(set, name, ...) \
  inline constexpr ::loom::simd::SingleVersion<__VA_ARGS__> name { LOOM_SIMD_LEVEL_##set, nullptr }
#endif
#define LOOM_SIMD_LEVEL_avx512 ::loom::SimdLevel::kAvx512
#define LOOM_SIMD_LEVEL_avx512_bf16 ::loom::SimdLevel::kAvx512Bf16
