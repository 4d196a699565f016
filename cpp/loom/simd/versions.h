// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Kernels in files that are compiled once for each instruction set, and the one place that chooses
// among them. Such a file (loom_simd_sources() in cmake/LoomSimd.cmake) puts its functions into the
// namespace LOOM_SIMD, which is scalar, avx2 or avx512; its header says
//
//     LOOM_SIMD_VERSIONS(scale, void(float* values, std::int64_t count) noexcept);
//
// which makes `scale(values, count)` the version for simd_level(), and scale.of(SimdLevel::kAvx2)
// that one. Overloads are declared with LOOM_SIMD_DECLARE, and their versions by
// LOOM_SIMD_LIST(name). Files for an instruction set include little and define nothing outside
// their namespace: the linker keeps one of all equal inline functions, which might be one for wider
// instructions than the processor has. Thread: any.

#include "loom/base/simd_level.h"

#include <type_traits>

namespace loom::simd {

template <class Signature>
class Versions;

template <class Result, class... Argument>
class Versions<Result(Argument...) noexcept> {
 public:
  using Function = Result (*)(Argument...) noexcept;

  constexpr Versions(Function scalar, Function avx2, Function avx512) noexcept
      : functions_{scalar, avx2, avx512} {}

  /// The version for an instruction set. Requires: the processor has it.
  [[nodiscard]] constexpr Function of(SimdLevel level) const noexcept {
    return functions_[static_cast<int>(vectors_of(level))];
  }
  Result operator()(Argument... arguments) const noexcept { return of(simd_level())(arguments...); }

 private:
  Function functions_[3];
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
#define LOOM_SIMD_LIST(name) &scalar::name, &avx2::name, &avx512::name
#else
#define LOOM_SIMD_DECLARE(...) \
  namespace scalar {           \
  __VA_ARGS__                  \
  }
#define LOOM_SIMD_LIST(name) &scalar::name, &scalar::name, &scalar::name
#endif

#define LOOM_SIMD_VERSIONS(name, ...)                        \
  LOOM_SIMD_DECLARE(std::type_identity_t<__VA_ARGS__> name;) \
  inline constexpr ::loom::simd::Versions<__VA_ARGS__> name { LOOM_SIMD_LIST(name) }
