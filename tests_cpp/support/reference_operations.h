// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the operations of bodies give for one element, as plainly as possible. Thread: any.

#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include "support/reference_values.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace loom::fusion::testing::detail {

template <class T>
T function_of(Op op, T a, T b) {
  int sign = 0;
  switch (op) {
    case Op::kExp:
      return std::exp(a);
    case Op::kExp2:
      return std::exp2(a);
    case Op::kExpm1:
      return std::expm1(a);
    case Op::kLog:
      return std::log(a);
    case Op::kLog2:
      return std::log2(a);
    case Op::kLog10:
      return std::log10(a);
    case Op::kLog1p:
      return std::log1p(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kCos:
      return std::cos(a);
    case Op::kTan:
      return std::tan(a);
    case Op::kAsin:
      return std::asin(a);
    case Op::kAcos:
      return std::acos(a);
    case Op::kAtan:
      return std::atan(a);
    case Op::kSinh:
      return std::sinh(a);
    case Op::kCosh:
      return std::cosh(a);
    case Op::kTanh:
      return std::tanh(a);
    case Op::kAsinh:
      return std::asinh(a);
    case Op::kAcosh:
      return std::acosh(a);
    case Op::kAtanh:
      return std::atanh(a);
    case Op::kErf:
      return std::erf(a);
    case Op::kNormalCdf:
      return std::erfc(a * static_cast<T>(-0.70710678118654752)) / 2;
    case Op::kLgamma:
      return static_cast<T>(::lgamma_r(a, &sign));
    case Op::kPow:
      return std::pow(a, b);
    case Op::kAtan2:
      return std::atan2(a, b);
    case Op::kHypot:
      return std::hypot(a, b);
    case Op::kFmod:
      return std::fmod(a, b);
    default:
      break;
  }
  // The inverse of erf, by bisection: up to the last bits.
  if (std::isnan(a) || std::fabs(a) > 1) return std::numeric_limits<T>::quiet_NaN();
  if (std::fabs(a) == 1) return std::copysign(std::numeric_limits<T>::infinity(), a);
  double low = 0, high = 6;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    // 1 - |a| is exact where erf is too flat.
    const bool below = std::fabs(a) < 0.5 ? std::erf(middle) < std::fabs(a)
                                          : std::erfc(middle) > 1.0 - std::fabs(a);
    (below ? low : high) = middle;
  }
  return static_cast<T>(std::copysign(low, a));
}

template <class T>
T floating_result(Op op, T a, T b, T c) {
  switch (op) {
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return a > 0 ? T(1) : a < 0 ? T(-1) : T(0);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kReciprocal:
      return 1 / a;
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kRound:
      return std::nearbyint(a);
    case Op::kTrunc:
      return std::trunc(a);
    case Op::kRoundHalf:
      return rounded_to_half(static_cast<float>(a));
    case Op::kRoundBFloat16:
      return rounded_to_bfloat16(static_cast<float>(a));
    case Op::kAdd:
    case Op::kSum:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kMaximum:
    case Op::kMax:
      return std::isnan(a) || a > b ? a : b;
    case Op::kMinimum:
    case Op::kMin:
      return std::isnan(a) || a < b ? a : b;
    case Op::kFMax:
      return std::isnan(b) || a > b ? a : b;
    case Op::kFMin:
      return std::isnan(b) || a < b ? a : b;
    case Op::kCopySign:
      return std::copysign(a, b);
    case Op::kMulAdd:
      return std::fma(a, b, c);
    default:
      return function_of(op, a, b);
  }
}

template <class T>
T integer_result(Op op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  const U x = static_cast<U>(a), y = static_cast<U>(b);
  switch (op) {
    case Op::kNeg:
      return static_cast<T>(0 - x);
    case Op::kAbs:
      return a < 0 ? static_cast<T>(0 - x) : a;
    case Op::kSign:
      return static_cast<T>((a > 0) - (a < 0));
    case Op::kWrapUInt8:
      return static_cast<std::uint8_t>(x);
    case Op::kWrapInt8:
      return static_cast<std::int8_t>(x);
    case Op::kWrapInt16:
      return static_cast<std::int16_t>(x);
    case Op::kNot:
      return static_cast<T>(~x);
    case Op::kAdd:
    case Op::kSum:
      return static_cast<T>(x + y);
    case Op::kSub:
      return static_cast<T>(x - y);
    case Op::kMul:
      return static_cast<T>(x * y);
    case Op::kMaximum:
    case Op::kMax:
      return std::max(a, b);
    case Op::kMinimum:
    case Op::kMin:
      return std::min(a, b);
    case Op::kAnd:
      return static_cast<T>(x & y);
    case Op::kOr:
      return static_cast<T>(x | y);
    case Op::kShiftLeft:
      return y < sizeof(T) * 8 ? static_cast<T>(x << y) : T(0);
    case Op::kShiftRight:
      return y < sizeof(T) * 8 ? static_cast<T>(a >> y) : static_cast<T>(a < 0 ? -1 : 0);
    default:
      return static_cast<T>(x ^ y);
  }
}

inline bool mask_result(Op op, bool a, bool b) {
  switch (op) {
    case Op::kNot:
      return !a;
    case Op::kAnd:
      return a && b;
    case Op::kOr:
      return a || b;
    default:
      return a != b;
  }
}

template <class T>
Param result_of(Op op, T a, T b, T c) {
  switch (op) {
    case Op::kIsNan:
      return to_param(a != a);
    case Op::kToMask:
      return to_param(converted<bool>(a));
    case Op::kToInt32:
      return to_param(converted<std::int32_t>(a));
    case Op::kToInt64:
      return to_param(converted<std::int64_t>(a));
    case Op::kToFloat:
      return to_param(converted<float>(a));
    case Op::kToDouble:
      return to_param(converted<double>(a));
    case Op::kEq:
      return to_param(a == b);
    case Op::kNe:
      return to_param(a != b);
    case Op::kLt:
      return to_param(a < b);
    case Op::kLe:
      return to_param(a <= b);
    case Op::kGt:
      return to_param(a > b);
    case Op::kGe:
      return to_param(a >= b);
    default:
      break;
  }
  if constexpr (std::is_same_v<T, bool>) {
    return to_param(mask_result(op, a, b));
  } else if constexpr (std::is_floating_point_v<T>) {
    return to_param(floating_result(op, a, b, c));
  } else {
    return to_param(integer_result(op, a, b));
  }
}

template <class T>
Param reduced(Op op, const std::vector<Param>& elements) {
  using Limits = std::numeric_limits<T>;
  const T high = Limits::has_infinity ? Limits::infinity() : Limits::max();
  const T low = Limits::has_infinity ? -Limits::infinity() : Limits::min();
  std::vector<T> lanes(kReductionLanes, op == Op::kSum ? T(0) : op == Op::kMax ? low : high);
  const auto take = [op](T& lane, T element) {
    lane = as<T>(result_of<T>(op, lane, element, T(0)));
  };
  for (std::size_t i = 0; i < elements.size(); ++i) take(lanes[i % 64], as<T>(elements[i]));
  for (std::size_t half = 32; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) take(lanes[i], lanes[i + half]);
  }
  return to_param(lanes[0]);
}

}  // namespace loom::fusion::testing::detail
