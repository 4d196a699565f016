// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The loops of primitives.h: included once for each instruction set. Compiled with
// -ffp-contract=off: a product and a sum are rounded one by one.

#include "loom/fusion/element_ops.h"
#include "loom/fusion/primitives.h"

#include <cstddef>

#if defined(LOOM_SIMD_AVX2) || defined(LOOM_SIMD_AVX512)
#include "loom/fusion/vector_math_impl.h"
#else
#include "loom/fusion/simd_scalar.h"
#endif

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

// Operands are distinct or the same, so no iteration depends on another one.
#define LOOM_LOOP _Pragma("GCC ivdep") for (std::int64_t i = 0; i < n; ++i)

template <class F, class R, class T>
void unary(void* out, const void* a, const void*, const void*, std::int64_t n) {
  auto* const to = static_cast<R*>(out);
  const auto* const x = static_cast<const T*>(a);
  LOOM_LOOP to[i] = static_cast<R>(F::apply(x[i]));
}

template <class F, class R, class T, bool uniform_a, bool uniform_b>
void binary(void* out, const void* a, const void* b, const void*, std::int64_t n) {
  auto* const to = static_cast<R*>(out);
  const auto* const x = static_cast<const T*>(a);
  const auto* const y = static_cast<const T*>(b);
  [[maybe_unused]] const T x0 = uniform_a ? x[0] : T(), y0 = uniform_b ? y[0] : T();
  LOOM_LOOP to[i] = F::apply(uniform_a ? x0 : x[i], uniform_b ? y0 : y[i]);
}

template <class T, bool uniform_a, bool uniform_b, bool uniform_c>
void mul_add_loop(void* out, const void* a, const void* b, const void* c, std::int64_t n) {
  auto* const to = static_cast<T*>(out);
  const auto* const x = static_cast<const T*>(a);
  const auto* const y = static_cast<const T*>(b);
  const auto* const z = static_cast<const T*>(c);
  const T x0 = x[0], y0 = y[0], z0 = z[0];
  LOOM_LOOP to[i] =
      MulAdd::apply(uniform_a ? x0 : x[i], uniform_b ? y0 : y[i], uniform_c ? z0 : z[i]);
}

template <class T, bool uniform_a, bool uniform_b, bool uniform_c>
void select_loop(void* out, const void* a, const void* b, const void* c, std::int64_t n) {
  auto* const to = static_cast<T*>(out);
  const auto* const x = static_cast<const Mask*>(a);
  const auto* const y = static_cast<const T*>(b);
  const auto* const z = static_cast<const T*>(c);
  const Mask x0 = x[0];
  const T y0 = y[0], z0 = z[0];
  LOOM_LOOP {
    const T yes = uniform_b ? y0 : y[i], no = uniform_c ? z0 : z[i];
    to[i] = (uniform_a ? x0 : x[i]) != 0 ? yes : no;
  }
}

/// The first `count` of a vector's elements; zeros after them.
template <class Vector, class T>
[[gnu::always_inline]] inline Vector load_vector(const T* from, std::int64_t count) {
  Vector vector{};
  __builtin_memcpy(&vector, from, static_cast<std::size_t>(count) * sizeof(T));
  return vector;
}

/// Not `Vector{} + value`, which loses the sign of zeros.
template <class Vector, class T>
[[gnu::always_inline]] inline Vector broadcast(T value) {
  T lanes[sizeof(Vector) / sizeof(T)];
  for (T& lane : lanes) lane = value;
  Vector vector;
  __builtin_memcpy(&vector, lanes, sizeof vector);
  return vector;
}

template <Op op, class Vector, class T>
void math_unary(void* out, const void* a, const void*, const void*, std::int64_t n) {
  constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(T);
  auto* const to = static_cast<T*>(out);
  const auto* const x = static_cast<const T*>(a);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector result = VectorMath<op>::apply(load_vector<Vector>(x + i, kLanes));
    __builtin_memcpy(to + i, &result, sizeof result);
  }
  if (i == n) return;
  const Vector result = VectorMath<op>::apply(load_vector<Vector>(x + i, n - i));
  __builtin_memcpy(to + i, &result, static_cast<std::size_t>(n - i) * sizeof(T));
}

template <Op op, class Vector, class T, bool uniform_a, bool uniform_b>
void math_binary(void* out, const void* a, const void* b, const void*, std::int64_t n) {
  constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(T);
  auto* const to = static_cast<T*>(out);
  const auto* const x = static_cast<const T*>(a);
  const auto* const y = static_cast<const T*>(b);
  const Vector x0 = broadcast<Vector>(x[0]), y0 = broadcast<Vector>(y[0]);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector result =
        VectorMath<op>::apply(uniform_a ? x0 : load_vector<Vector>(x + i, kLanes),
                              uniform_b ? y0 : load_vector<Vector>(y + i, kLanes));
    __builtin_memcpy(to + i, &result, sizeof result);
  }
  if (i == n) return;
  const Vector result = VectorMath<op>::apply(uniform_a ? x0 : load_vector<Vector>(x + i, n - i),
                                              uniform_b ? y0 : load_vector<Vector>(y + i, n - i));
  __builtin_memcpy(to + i, &result, static_cast<std::size_t>(n - i) * sizeof(T));
}

/// out[lane] = f(out[lane], a[i]); n need not be a multiple of the lanes, but only the last call
/// for a row may have such an n.
template <class F, class T>
void accumulate(void* out, const void* a, const void*, const void*, std::int64_t n) {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));  // NOLINT(modernize-use-using)
  constexpr int kLanes = kVectorBytes / sizeof(T), kVectors = kReductionLanes / kLanes;
  auto* const lanes = static_cast<T*>(out);
  const auto* const x = static_cast<const T*>(a);
  Vector sums[kVectors];
  __builtin_memcpy(sums, lanes, sizeof sums);
  std::int64_t i = 0;
  for (; i + kReductionLanes <= n; i += kReductionLanes) {
#pragma GCC unroll 64
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = F::apply(sums[v], load_vector<Vector>(x + i + v * kLanes, kLanes));
    }
  }
  __builtin_memcpy(lanes, sums, sizeof sums);
  for (std::int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] = F::apply(lanes[lane], x[i]);
}

template <class F, class T>
void fold(void* out, const void* a, const void*, const void*, std::int64_t) {
  T lanes[kReductionLanes];
  __builtin_memcpy(lanes, a, sizeof lanes);
  for (std::int64_t half = kReductionLanes / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) lanes[i] = F::apply(lanes[i], lanes[i + half]);
  }
  *static_cast<T*>(out) = lanes[0];
}

// For reductions, of whole vectors and of single elements.
struct ReduceSum {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a + b;
  }
};
struct ReduceMax {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct ReduceMin {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

template <class T>
[[gnu::always_inline]] inline T highest() {
  if constexpr (kFloating<T>) {
    return static_cast<T>(__builtin_inff());
  } else {
    return static_cast<T>(~Wrap<T>(0) >> 1);
  }
}

template <Op op, class T>
void start_reduction(void* out, const void*, const void*, const void*, std::int64_t) {
  auto* const lanes = static_cast<T*>(out);
  const T lowest = kFloating<T> ? -highest<T>() : static_cast<T>(-highest<T>() - 1);
  const T start = op == Op::kSum ? T(0) : op == Op::kMax ? lowest : highest<T>();
  for (int i = 0; i < kReductionLanes; ++i) lanes[i] = start;
}

struct FromBFloat16 {
  static float apply(std::uint16_t a) { return from_bfloat16(a); }
};
struct FromHalf {
  static float apply(std::uint16_t a) { return from_half(a); }
};
struct ToBFloat16 {
  static std::uint32_t apply(float a) { return bfloat16_bits(a); }
};
struct ToHalf {
  static std::uint32_t apply(float a) { return half_bits(a); }
};
struct Same {
  template <class T>
  [[gnu::always_inline]] static T apply(T a) {
    return a;
  }
};

template <class T>
void fill_loop(void* out, const void* a, const void*, const void*, std::int64_t n) {
  auto* const to = static_cast<T*>(out);
  const T value = *static_cast<const T*>(a);
  LOOM_LOOP to[i] = value;
}

template <std::int64_t size>
void stream_loop(void* out, const void* a, const void*, const void*, std::int64_t n) {
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(a);
  std::int64_t bytes = n * size;
  for (; bytes >= kVectorBytes; bytes -= kVectorBytes) {
    stream_vector(to, from);
    to += kVectorBytes;
    from += kVectorBytes;
  }
  __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
  end_of_stream();
}
#undef LOOM_LOOP

}  // namespace
}  // namespace loom::fusion
