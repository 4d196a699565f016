// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions of one vector, as overloads for FloatVector and DoubleVector: included once for
// each instruction set, which LOOM_SIMD_AVX2 or LOOM_SIMD_AVX512 names. Nothing in here may have
// external linkage, nor may inline functions of the standard library be used: the linker keeps one
// copy of those, and it must not be one that other processors cannot run.

#include "loom/fusion/op.h"
#include "loom/fusion/vector_math_list.h"

#if defined(LOOM_SIMD_AVX512)
#include "loom/fusion/simd_avx512.h"
#else
#include "loom/fusion/simd_avx2.h"
#endif

#include "loom/fusion/simd_math.h"
#include "loom/fusion/vector_formulas.h"

// NOLINTBEGIN(readability-identifier-naming): Sleef's names
#define LOOM_DECLARE(op, name, float_suffix, double_suffix)                                       \
  extern "C" loom::fusion::FloatVector LOOM_SLEEF_FLOAT(name,                                     \
                                                        float_suffix)(loom::fusion::FloatVector); \
  extern "C" loom::fusion::DoubleVector LOOM_SLEEF_DOUBLE(                                        \
      name, double_suffix)(loom::fusion::DoubleVector);
LOOM_SLEEF_UNARY(LOOM_DECLARE)
LOOM_SLEEF_ANGLE(LOOM_DECLARE)
LOOM_SLEEF_HYPERBOLIC(LOOM_DECLARE)
LOOM_DECLARE(, erfc, _u15, _u15)  // of kNormalCdf
#undef LOOM_DECLARE
#define LOOM_DECLARE(op, name, float_suffix, double_suffix)                     \
  extern "C" loom::fusion::FloatVector LOOM_SLEEF_FLOAT(name, float_suffix)(    \
      loom::fusion::FloatVector, loom::fusion::FloatVector);                    \
  extern "C" loom::fusion::DoubleVector LOOM_SLEEF_DOUBLE(name, double_suffix)( \
      loom::fusion::DoubleVector, loom::fusion::DoubleVector);
LOOM_SLEEF_BINARY(LOOM_DECLARE)
LOOM_SLEEF_REMAINDER(LOOM_DECLARE)
#undef LOOM_DECLARE
// NOLINTEND(readability-identifier-naming)

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

/// VectorMath<op>::apply computes an operation; without operands there is none.
template <Op op>
struct VectorMath {
  static constexpr int kOperands = 0;
};

/// By our own formula, if there is one.
template <Op op, class Sleef, class... Vector>
[[gnu::always_inline]] inline FloatVector by_formula_or(Sleef sleef, Vector... operands) {
  if constexpr (Formula<op>::kExists) {
    SimdMath math;
    return Formula<op>::apply(math, operands...);
  } else {
    return sleef(operands...);
  }
}

#define LOOM_DEFINE(op, name, float_suffix, double_suffix)                   \
  template <>                                                                \
  struct VectorMath<Op::op> {                                                \
    static constexpr int kOperands = 1;                                      \
    static FloatVector apply(FloatVector a) {                                \
      return by_formula_or<Op::op>(LOOM_SLEEF_FLOAT(name, float_suffix), a); \
    }                                                                        \
    static DoubleVector apply(DoubleVector a) {                              \
      return LOOM_SLEEF_DOUBLE(name, double_suffix)(a);                      \
    }                                                                        \
  };
LOOM_SLEEF_UNARY(LOOM_DEFINE)
#undef LOOM_DEFINE
#define LOOM_DEFINE(op, name, float_suffix, double_suffix)                      \
  template <>                                                                   \
  struct VectorMath<Op::op> {                                                   \
    static constexpr int kOperands = 2;                                         \
    static FloatVector apply(FloatVector a, FloatVector b) {                    \
      return by_formula_or<Op::op>(LOOM_SLEEF_FLOAT(name, float_suffix), a, b); \
    }                                                                           \
    static DoubleVector apply(DoubleVector a, DoubleVector b) {                 \
      return LOOM_SLEEF_DOUBLE(name, double_suffix)(a, b);                      \
    }                                                                           \
  };
LOOM_SLEEF_BINARY(LOOM_DEFINE)
#undef LOOM_DEFINE

/// Sleef reduces the angles of a vector in the way that its largest lane needs. Here each lane gets
/// the result that it would get in a vector of its own kind, so that results do not depend on which
/// elements share a vector. The bounds are Sleef's, all lanes at a bound are above it.
template <class Vector, class Function>
[[gnu::always_inline]] inline Vector by_size_of_angle(Vector a, double low, double high,
                                                      Function function) {
  using Number = decltype(+a[0]);
  const Vector bound_low = Vector{} + static_cast<Number>(low);
  const Vector bound_high = Vector{} + static_cast<Number>(high);
  const Vector size = a < 0 ? -a : a;
  const auto small = size < bound_low, large = ~(size < bound_high), middle = ~(small | large);
  Vector result = a;
  if (any(reinterpret_cast<IntVector>(small))) result = function(small ? a : Vector{});
  if (any(reinterpret_cast<IntVector>(middle))) {
    result = small ? result : function(middle ? a : bound_low);
  }
  if (any(reinterpret_cast<IntVector>(large))) {
    result = large ? function(large ? a : bound_high) : result;
  }
  return result;
}

#define LOOM_DEFINE(op, name, float_suffix, double_suffix)                              \
  template <>                                                                           \
  struct VectorMath<Op::op> {                                                           \
    static constexpr int kOperands = 1;                                                 \
    static FloatVector apply(FloatVector a) {                                           \
      return by_size_of_angle(a, 125.0, 39000.0, LOOM_SLEEF_FLOAT(name, float_suffix)); \
    }                                                                                   \
    static DoubleVector apply(DoubleVector a) {                                         \
      return by_size_of_angle(a, 15.0, 1e14, LOOM_SLEEF_DOUBLE(name, double_suffix));   \
    }                                                                                   \
  };
LOOM_SLEEF_ANGLE(LOOM_DEFINE)
#undef LOOM_DEFINE

// e^64 / 2 and e^640 / 2.
constexpr double kHalfOfPower64 = 3.117574540405808441454619e27;
constexpr double kHalfOfPower640 = 4.440566951579436649617137e277;

/// Beyond Sleef's bound, which has no rounding, both are e^|a| / 2 with a's sign or without: that
/// is e^(|a| - shift) times e^shift / 2, of which only the product may leave the range. The
/// difference is exact. Within 2 units in the last place.
template <class Vector, class Function>
[[gnu::always_inline]] inline Vector beyond_range(Op op, Vector a, double bound, double shift,
                                                  double half_of_power, Function function) {
  using Number = decltype(+a[0]);
  const Vector size = a < 0 ? -a : a;
  const auto large = size > static_cast<Number>(bound);
  const Vector near = function(a);
  if (!any(reinterpret_cast<IntVector>(large))) return near;
  const Vector power =
      VectorMath<Op::kExp>::apply(large ? size - static_cast<Number>(shift) : Vector{});
  const Vector far = power * static_cast<Number>(half_of_power);
  if (op == Op::kCosh) return large ? far : near;
  return large ? (a < 0 ? -far : far) : near;
}

#define LOOM_DEFINE(op, name, float_suffix, double_suffix)         \
  template <>                                                      \
  struct VectorMath<Op::op> {                                      \
    static constexpr int kOperands = 1;                            \
    static FloatVector apply(FloatVector a) {                      \
      return beyond_range(Op::op, a, 88, 64, kHalfOfPower64,       \
                          LOOM_SLEEF_FLOAT(name, float_suffix));   \
    }                                                              \
    static DoubleVector apply(DoubleVector a) {                    \
      return beyond_range(Op::op, a, 709, 640, kHalfOfPower640,    \
                          LOOM_SLEEF_DOUBLE(name, double_suffix)); \
    }                                                              \
  };
LOOM_SLEEF_HYPERBOLIC(LOOM_DEFINE)
#undef LOOM_DEFINE

/// Where a / b leaves the range, which makes Sleef's remainder NaN, |b| is below 1. The remainder
/// of a by b is that of its remainder by `step` b, and of that by `step`^2 b first, if that is
/// finite: all are exact, and no quotient is above `step`.
template <class Vector, class Function>
[[gnu::always_inline]] inline Vector of_any_quotient(Vector a, Vector b, double step, double most,
                                                     Function function) {
  using Number = decltype(+a[0]);
  const Vector quotient = a / b, largest = Vector{} + static_cast<Number>(most);
  const Vector size = a < 0 ? -a : a, size_of_quotient = quotient < 0 ? -quotient : quotient;
  const auto leaves = (size_of_quotient > largest) & (size <= largest) & (b != 0);
  if (!any(reinterpret_cast<IntVector>(leaves))) return function(a, b);
  const Vector once = b * static_cast<Number>(step), twice = once * static_cast<Number>(step);
  const auto takes_twice = leaves & ((twice < 0 ? -twice : twice) <= largest);
  const Vector one = Vector{} + 1;
  Vector left = takes_twice ? function(a, takes_twice ? twice : one) : a;
  left = leaves ? function(left, leaves ? once : one) : left;
  return function(left, b);
}

#define LOOM_DEFINE(op, name, float_suffix, double_suffix)                                        \
  template <>                                                                                     \
  struct VectorMath<Op::op> {                                                                     \
    static constexpr int kOperands = 2;                                                           \
    static FloatVector apply(FloatVector a, FloatVector b) {                                      \
      return of_any_quotient(a, b, 0x1p96, 0x1.fffffep127, LOOM_SLEEF_FLOAT(name, float_suffix)); \
    }                                                                                             \
    static DoubleVector apply(DoubleVector a, DoubleVector b) {                                   \
      return of_any_quotient(a, b, 0x1p700, 0x1.fffffffffffffp1023,                               \
                             LOOM_SLEEF_DOUBLE(name, double_suffix));                             \
    }                                                                                             \
  };
LOOM_SLEEF_REMAINDER(LOOM_DEFINE)
#undef LOOM_DEFINE

template <>
struct VectorMath<Op::kNormalCdf> {
  static constexpr int kOperands = 1;

  static FloatVector apply(FloatVector a) {
    SimdMath math;
    return Formula<Op::kNormalCdf>::apply(math, a);
  }
  static DoubleVector apply(DoubleVector a) {
    return LOOM_SLEEF_DOUBLE(erfc, _u15)(a * -0.70710678118654752) * 0.5;
  }
};

}  // namespace
}  // namespace loom::fusion
