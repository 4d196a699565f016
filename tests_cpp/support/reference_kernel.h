// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a body means, written down as plainly as possible: one instruction after the other, each for
// a whole row, each element by itself. The oracle of all kernels.

#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace loom::fusion::testing {

/// The nearest number with `digits` binary digits after the leading one, exponents from `lowest`.
inline double rounded_to(double value, int digits, int lowest, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double step = std::ldexp(1.0, std::max(std::ilogb(value), lowest) - digits);
  const double rounded = std::copysign(std::nearbyint(value / step) * step, value);
  return std::fabs(rounded) > largest ? std::copysign(HUGE_VAL, value) : rounded;
}
inline float rounded_to_half(float value) {
  return static_cast<float>(rounded_to(value, 10, -14, 65504.0));
}
inline float rounded_to_bfloat16(float value) {
  return static_cast<float>(rounded_to(value, 7, -126, 0x1.FEp127));
}

inline float decoded_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return std::copysign(mantissa != 0 ? std::nanf("") : HUGE_VALF, sign);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}
inline std::uint16_t encoded_half(float value) {
  if (std::isnan(value)) return 0x7E00;
  const float half = rounded_to_half(value), size = std::fabs(half);
  const int sign = std::signbit(half) ? 0x8000 : 0;
  if (std::isinf(size)) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (size < 0x1p-14F) return static_cast<std::uint16_t>(sign | static_cast<int>(size * 0x1p24F));
  const int exponent = std::ilogb(size);
  const int mantissa = static_cast<int>(std::ldexp(size, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | mantissa);
}
inline float decoded_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
inline std::uint16_t encoded_bfloat16(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const float rounded = rounded_to_bfloat16(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &rounded, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

namespace detail {

template <class T>
T as(const Param& value) {
  if constexpr (std::is_same_v<T, bool>) return value.mask;
  if constexpr (std::is_same_v<T, std::int32_t>) return value.int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return value.int64;
  if constexpr (std::is_same_v<T, float>) return value.float32;
  if constexpr (std::is_same_v<T, double>) return value.float64;
}
inline Param to_param(bool value) { return {.mask = value}; }
inline Param to_param(std::int32_t value) { return {.int32 = value}; }
inline Param to_param(std::int64_t value) { return {.int64 = value}; }
inline Param to_param(float value) { return {.float32 = value}; }
inline Param to_param(double value) { return {.float64 = value}; }

/// f(T()) for the C++ type of `type`.
template <class F>
auto with_type(Type type, F f) {
  if (type == Type::kMask) return f(bool());
  if (type == Type::kInt32) return f(std::int32_t());
  if (type == Type::kInt64) return f(std::int64_t());
  return type == Type::kFloat ? f(float()) : f(double());
}

template <class To, class From>
To converted(From a) {
  if constexpr (std::is_same_v<To, bool>) {
    return a != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const double bound = std::ldexp(1.0, sizeof(To) * 8 - 1);
    return a >= -bound && a < bound ? static_cast<To>(a) : std::numeric_limits<To>::min();
  } else {
    return static_cast<To>(a);
  }
}

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

inline Param loaded(DType dtype, const std::byte* at) {
  const auto get = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kBool:
      return to_param(get(std::uint8_t()) != 0);
    case DType::kUInt8:
      return to_param(std::int32_t{get(std::uint8_t())});
    case DType::kInt8:
      return to_param(std::int32_t{get(std::int8_t())});
    case DType::kInt16:
      return to_param(std::int32_t{get(std::int16_t())});
    case DType::kInt32:
      return to_param(get(std::int32_t()));
    case DType::kInt64:
      return to_param(get(std::int64_t()));
    case DType::kHalf:
      return to_param(decoded_half(get(std::uint16_t())));
    case DType::kBFloat16:
      return to_param(decoded_bfloat16(get(std::uint16_t())));
    case DType::kFloat:
      return to_param(get(float()));
    case DType::kDouble:
      break;
  }
  return to_param(get(double()));
}

inline void store(DType dtype, const Param& value, std::byte* at) {
  const auto put = [at](auto number) { std::memcpy(at, &number, sizeof number); };
  switch (dtype) {
    case DType::kBool:
      return put(static_cast<std::uint8_t>(value.mask));
    case DType::kUInt8:
    case DType::kInt8:
      return put(static_cast<std::uint8_t>(value.int32));
    case DType::kInt16:
      return put(static_cast<std::uint16_t>(value.int32));
    case DType::kInt32:
      return put(value.int32);
    case DType::kInt64:
      return put(value.int64);
    case DType::kHalf:
      return put(encoded_half(value.float32));
    case DType::kBFloat16:
      return put(encoded_bfloat16(value.float32));
    case DType::kFloat:
      return put(value.float32);
    case DType::kDouble:
      return put(value.float64);
  }
}

}  // namespace detail

class ReferenceKernel final : public Kernel {
 public:
  explicit ReferenceKernel(const Body& body) : body_(body), analysis_(analyse(body)) {}

  void run(const Arguments& arguments) const noexcept override {
    for (std::int64_t row = 0; row < arguments.rows; ++row) run_row(arguments, row);
  }
  [[nodiscard]] std::size_t scratch_bytes(std::int64_t /*columns*/) const noexcept override {
    return 0;
  }

 private:
  using Row = std::vector<Param>;  ///< one element if the value is uniform

  void run_row(const Arguments& arguments, std::int64_t row) const {
    const auto count = [&](bool uniform) {
      return static_cast<std::size_t>(uniform ? 1 : arguments.columns);
    };
    const auto at = [row](const Place& place, DType dtype, std::size_t i) {
      return place.data + row * place.row_stride + static_cast<std::int64_t>(i * size_of(dtype));
    };
    std::vector<Row> values;
    for (std::size_t k = 0; k < body_.inputs.size(); ++k) {
      const DType dtype = body_.inputs[k].dtype;
      values.emplace_back(count(body_.inputs[k].uniform));
      for (std::size_t i = 0; i < values[k].size(); ++i) {
        values[k][i] = detail::loaded(dtype, at(arguments.inputs[k], dtype, i));
      }
    }
    for (std::size_t k = 0; k < body_.params.size(); ++k) values.push_back({arguments.params[k]});
    for (const Instruction& instruction : body_.instructions) {
      values.push_back(
          computed(instruction, values, count(analysis_.values[values.size()].uniform)));
    }
    for (std::size_t k = 0; k < body_.outputs.size(); ++k) {
      const Output& output = body_.outputs[k];
      for (std::size_t i = 0; i < count(output.uniform); ++i) {
        const Row& value = values[output.value];
        detail::store(output.dtype, value[value.size() == 1 ? 0 : i],
                      at(arguments.outputs[k], output.dtype, i));
      }
    }
  }

  static Row computed(const Instruction& instruction, const std::vector<Row>& values,
                      std::size_t count) {
    const auto operand = [&values](ValueId id, std::size_t i) {
      return values[id][values[id].size() == 1 ? 0 : i];
    };
    const int operands = operand_count(instruction.op);
    Row result(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (instruction.op == Op::kSelect) {
        const bool yes = operand(instruction.a, i).mask;
        result[i] = operand(yes ? instruction.b : instruction.c, i);
        continue;
      }
      result[i] = detail::with_type(instruction.type, [&]<class T>(T) {
        if constexpr (!std::is_same_v<T, bool>) {
          if (is_reduction(instruction.op)) {
            return detail::reduced<T>(instruction.op, values[instruction.a]);
          }
        }
        const T a = detail::as<T>(operand(instruction.a, i));
        const T b = operands > 1 ? detail::as<T>(operand(instruction.b, i)) : T(0);
        const T c = operands > 2 ? detail::as<T>(operand(instruction.c, i)) : T(0);
        return detail::result_of<T>(instruction.op, a, b, c);
      });
    }
    return result;
  }

  const Body body_;
  const Analysis analysis_;
};

}  // namespace loom::fusion::testing
