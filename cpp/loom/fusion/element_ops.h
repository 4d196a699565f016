// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The operations on single elements that compilers make vector loops of. The rule of
// vector_math_impl.h holds here, too: nothing with external linkage, nothing of the standard
// library.

#include "loom/fusion/op.h"
#include "loom/simd/half.h"

#include <cstdint>

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

using Mask = std::uint8_t;

/// The type that integers are computed in, so that they wrap around.
template <class T>
struct Wrapping {
  using Type = T;
};
template <>
struct Wrapping<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using Type = std::uint64_t;
};
template <class T>
using Wrap = typename Wrapping<T>::Type;

template <class T>
constexpr bool kFloating = false;
template <>
constexpr bool kFloating<float> = true;
template <>
constexpr bool kFloating<double> = true;

template <class To, class From>
[[gnu::always_inline]] inline To bits_as(From from) {
  return __builtin_bit_cast(To, from);
}

// `name(a, b, c)` of elements of one type, as a type whose apply() is that.
#define LOOM_ELEMENT_OP(Name, ...)                                                             \
  struct Name {                                                                                \
    template <class T>                                                                         \
    [[gnu::always_inline]] static auto apply([[maybe_unused]] T a, [[maybe_unused]] T b = T(), \
                                             [[maybe_unused]] T c = T()) {                     \
      using W [[maybe_unused]] = Wrap<T>;                                                      \
      __VA_ARGS__                                                                              \
    }                                                                                          \
  };

LOOM_ELEMENT_OP(Neg, if constexpr (kFloating<T>) return -a; else return T(W(0) - W(a));)
LOOM_ELEMENT_OP(IntegerAbs, return a < 0 ? T(W(0) - W(a)) : a;)
LOOM_ELEMENT_OP(Sign, return T(T(a > 0) - T(a < 0));)
LOOM_ELEMENT_OP(Reciprocal, return T(1) / a;)
LOOM_ELEMENT_OP(Not, if constexpr (sizeof(T) == 1) return T(a ^ 1); else return T(~a);)
LOOM_ELEMENT_OP(IsNan, return Mask(a != a);)
LOOM_ELEMENT_OP(WrapUInt8, return T(std::uint8_t(a));)
LOOM_ELEMENT_OP(WrapInt8, return T(std::int8_t(a));)
LOOM_ELEMENT_OP(WrapInt16, return T(std::int16_t(a));)
LOOM_ELEMENT_OP(Add, return T(W(a) + W(b));)
LOOM_ELEMENT_OP(Sub, return T(W(a) - W(b));)
LOOM_ELEMENT_OP(Mul, return T(W(a) * W(b));)
LOOM_ELEMENT_OP(Div, return a / b;)
LOOM_ELEMENT_OP(Maximum, return a > b || a != a ? a : b;)
LOOM_ELEMENT_OP(Minimum, return a < b || a != a ? a : b;)
LOOM_ELEMENT_OP(FMax, return a > b || b != b ? a : b;)
LOOM_ELEMENT_OP(FMin, return a < b || b != b ? a : b;)
LOOM_ELEMENT_OP(And, return T(a & b);)
LOOM_ELEMENT_OP(Or, return T(a | b);)
LOOM_ELEMENT_OP(Xor, return T(a ^ b);)
LOOM_ELEMENT_OP(ShiftLeft, return W(b) < sizeof(T) * 8 ? T(W(a) << W(b)) : T(0);)
LOOM_ELEMENT_OP(ShiftRight, return T(a >> (W(b) < sizeof(T) * 8 ? W(b) : sizeof(T) * 8 - 1));)
LOOM_ELEMENT_OP(Eq, return Mask(a == b);)
LOOM_ELEMENT_OP(Ne, return Mask(a != b);)
LOOM_ELEMENT_OP(Lt, return Mask(a < b);)
LOOM_ELEMENT_OP(Le, return Mask(a <= b);)
LOOM_ELEMENT_OP(Gt, return Mask(a > b);)
LOOM_ELEMENT_OP(Ge, return Mask(a >= b);)

// float and double have their own names for these.
#define LOOM_BUILTIN_OP(Name, builtin)                                                       \
  struct Name {                                                                              \
    [[gnu::always_inline]] static float apply(float a) { return __builtin_##builtin##f(a); } \
    [[gnu::always_inline]] static double apply(double a) { return __builtin_##builtin(a); }  \
  };
LOOM_BUILTIN_OP(Sqrt, sqrt)
LOOM_BUILTIN_OP(Floor, floor)
LOOM_BUILTIN_OP(Ceil, ceil)
LOOM_BUILTIN_OP(Round, rint)
LOOM_BUILTIN_OP(Trunc, trunc)
LOOM_BUILTIN_OP(FloatAbs, fabs)
#undef LOOM_BUILTIN_OP

LOOM_ELEMENT_OP(Rsqrt, return T(1) / Sqrt::apply(a);)
#undef LOOM_ELEMENT_OP

struct CopySign {
  static float apply(float a, float b) { return __builtin_copysignf(a, b); }
  static double apply(double a, double b) { return __builtin_copysign(a, b); }
};
struct MulAdd {
  static float apply(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double apply(double a, double b, double c) { return __builtin_fma(a, b, c); }
};

/// To `To`, as the comment at Op::kToMask says.
template <class To>
struct Convert {
  template <class T>
  [[gnu::always_inline]] static To apply(T a) {
    if constexpr (sizeof(To) == 1) {
      return To(a != 0);
    } else if constexpr (kFloating<T> && !kFloating<To>) {
      constexpr To kLowest = To(Wrap<To>(1) << (sizeof(To) * 8 - 1));
      constexpr T kBound = -T(kLowest);
      return a >= -kBound && a < kBound ? To(a) : kLowest;
    } else {
      return To(a);
    }
  }
};

using simd::bfloat16_bits;
using simd::from_bfloat16;
using simd::from_half;
using simd::half_bits;

struct RoundBFloat16 {
  static float apply(float a) { return from_bfloat16(bfloat16_bits(a)); }
};
struct RoundHalf {
  static float apply(float a) { return from_half(half_bits(a)); }
};

}  // namespace
}  // namespace loom::fusion
