// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What op.h says of one number at a time, in the shortest words.

#include "loom/fusion/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace loom::fusion::testing {

/// A number of any type, in the member for its type.
using Scalar = Param;

namespace detail {

template <class T>
T& member(Scalar& scalar) {
  if constexpr (std::is_same_v<T, bool>) return scalar.mask;
  if constexpr (std::is_same_v<T, std::int32_t>) return scalar.int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return scalar.int64;
  if constexpr (std::is_same_v<T, float>) return scalar.float32;
  if constexpr (std::is_same_v<T, double>) return scalar.float64;
}

template <class T>
T read(Scalar scalar) {
  return member<T>(scalar);
}

template <class T>
Scalar written(T value) {
  Scalar scalar{};
  member<T>(scalar) = value;
  return scalar;
}

/// Calls `visit` with a number of the C++ type for `type`.
template <class Visit>
auto with_type(Type type, Visit visit) {
  switch (type) {
    case Type::kMask:
      return visit(bool{});
    case Type::kInt32:
      return visit(std::int32_t{});
    case Type::kInt64:
      return visit(std::int64_t{});
    case Type::kFloat:
      return visit(float{});
    case Type::kDouble:
      break;
  }
  return visit(double{});
}

inline float from_bits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float half_to_float(std::uint16_t half) {
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) {
    using Limits = std::numeric_limits<float>;
    return std::copysign(fraction != 0 ? Limits::quiet_NaN() : Limits::infinity(), sign);
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

inline std::uint16_t float_to_half(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7E00;
  if (size >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), -14);
  // The significand counts units of 2^(exponent - 10); 1024 of them carry into the exponent.
  const float units = std::nearbyint(std::ldexp(size, 10 - exponent));
  return static_cast<std::uint16_t>(sign | ((exponent + 14) * 1024 + static_cast<int>(units)));
}

inline std::uint16_t float_to_bfloat16(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const std::uint32_t bits = bits_of(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// Integers are computed modulo 2^n.
template <class T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>,
                                             std::make_unsigned<T>, std::type_identity<T>>::type;

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> &&
                !std::is_same_v<To, bool>) {
    constexpr From kLimit = -static_cast<From>(std::numeric_limits<To>::min());
    if (!(value >= -kLimit && value < kLimit)) {
      // A double may be below the limit by less than one.
      const bool truncates = value > -kLimit - 1 && value < 0;
      return truncates ? static_cast<To>(std::trunc(value)) : std::numeric_limits<To>::min();
    }
  }
  return static_cast<To>(value);
}

template <class T>
T extreme(bool maximum, T a, T b) {
  if (a != a) return a;
  if (b != b) return b;
  return (maximum ? a > b : a < b) ? a : b;
}

template <class T>
T floating(Op op, T a, T b, T c) {
  switch (op) {
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kSign:
      return static_cast<T>((a > 0) - (a < 0));
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
      return static_cast<T>(half_to_float(float_to_half(static_cast<float>(a))));
    case Op::kRoundBFloat16:
      return static_cast<T>(
          from_bits(static_cast<std::uint32_t>(float_to_bfloat16(static_cast<float>(a))) << 16));
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kFMax:
      return a != a ? b : b != b ? a : a > b ? a : b;
    case Op::kFMin:
      return a != a ? b : b != b ? a : a < b ? a : b;
    case Op::kCopySign:
      return std::copysign(a, b);
    case Op::kMulAdd:
      return std::fma(a, b, c);
    default:
      return extreme(op == Op::kMaximum, a, b);
  }
}

template <class T>
T integer(Op op, T a, T b) {
  using U = Wrapping<T>;
  const U x = static_cast<U>(a), y = static_cast<U>(b);
  switch (op) {
    case Op::kNeg:
      return static_cast<T>(U{0} - x);
    case Op::kAbs:
      return a < 0 ? static_cast<T>(U{0} - x) : a;
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
      return static_cast<T>(x + y);
    case Op::kSub:
      return static_cast<T>(x - y);
    case Op::kMul:
      return static_cast<T>(x * y);
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    default:
      return extreme(op == Op::kMaximum, a, b);
  }
}

inline bool mask(Op op, bool a, bool b) {
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
bool compared(Op op, T a, T b) {
  switch (op) {
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

}  // namespace detail

/// `instruction` of numbers. Requires: neither a reduction nor a function.
inline Scalar evaluate(const Instruction& instruction, Scalar a, Scalar b, Scalar c) {
  const Op op = instruction.op;
  return detail::with_type(instruction.type, [&]<class T>(T) {
    const T x = detail::read<T>(a), y = detail::read<T>(b), z = detail::read<T>(c);
    if (op == Op::kSelect) return a.mask ? b : c;
    if (op == Op::kIsNan) return detail::written<bool>(x != x);
    if (op >= Op::kEq && op <= Op::kGe) return detail::written<bool>(detail::compared(op, x, y));
    if (op >= Op::kToMask && op <= Op::kToDouble) {
      return detail::with_type(result_type(op, instruction.type), [&]<class To>(To) {
        if constexpr (std::is_same_v<To, bool>) return detail::written<bool>(x != T{});
        return detail::written<To>(detail::converted<To>(x));
      });
    }
    if constexpr (std::is_same_v<T, bool>) {
      return detail::written<bool>(detail::mask(op, x, y));
    } else if constexpr (std::is_floating_point_v<T>) {
      return detail::written<T>(detail::floating(op, x, y, z));
    } else {
      return detail::written<T>(detail::integer(op, x, y));
    }
  });
}

inline Scalar load(DType dtype, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kBool:
      return detail::written<bool>(as(std::uint8_t{}) != 0);
    case DType::kUInt8:
      return detail::written<std::int32_t>(as(std::uint8_t{}));
    case DType::kInt8:
      return detail::written<std::int32_t>(as(std::int8_t{}));
    case DType::kInt16:
      return detail::written<std::int32_t>(as(std::int16_t{}));
    case DType::kInt32:
      return detail::written(as(std::int32_t{}));
    case DType::kInt64:
      return detail::written(as(std::int64_t{}));
    case DType::kHalf:
      return detail::written(detail::half_to_float(as(std::uint16_t{})));
    case DType::kBFloat16:
      return detail::written(
          detail::from_bits(static_cast<std::uint32_t>(as(std::uint16_t{})) << 16));
    case DType::kFloat:
      return detail::written(as(float{}));
    case DType::kDouble:
      break;
  }
  return detail::written(as(double{}));
}

inline void store(DType dtype, Scalar value, std::byte* at) {
  const auto put = [at](auto element) { std::memcpy(at, &element, sizeof element); };
  if (dtype == DType::kHalf) return put(detail::float_to_half(value.float32));
  if (dtype == DType::kBFloat16) return put(detail::float_to_bfloat16(value.float32));
  std::memcpy(at, &value, size_of(dtype));  // the lower bytes
}

}  // namespace loom::fusion::testing
