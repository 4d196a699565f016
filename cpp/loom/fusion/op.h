// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a fused program is made of: the types that values have in memory and in registers, and the
// operations between them. Every operation rounds as the separate operator would, so that it makes
// no difference to a result whether operators were fused: a multiplication and an addition are
// never contracted, and a result of a narrow type is rounded to it (kRound*, kWrap*) at once.
// Thread: values.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace loom::fusion {

/// A type in memory.
enum class DType : std::uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kHalf,
  kBFloat16,
  kFloat,
  kDouble,
};

/// A type in registers. kMask is a bool; kInt32 carries all integers up to 32 bits, kFloat all
/// floating-point numbers up to 32 bits, as values of their own type.
enum class Type : std::uint8_t { kMask, kInt32, kInt64, kFloat, kDouble };

[[nodiscard]] inline std::size_t size_of(DType dtype) noexcept {
  constexpr std::uint8_t kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<std::size_t>(dtype)];
}
/// The type that elements of `dtype` are loaded as and stored from.
[[nodiscard]] inline Type register_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::kBool:
      return Type::kMask;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
      return Type::kInt32;
    case DType::kInt64:
      return Type::kInt64;
    case DType::kHalf:
    case DType::kBFloat16:
    case DType::kFloat:
      return Type::kFloat;
    case DType::kDouble:
      break;
  }
  return Type::kDouble;
}

/// Instruction::type is the type of the operands (of `b` and `c` for kSelect). The result has it
/// too, where nothing else is said.
enum class Op : std::uint8_t {
  // Unary: a. Of all types but kMask:
  kNeg,
  kAbs,
  kSign,  ///< -1, 0 or 1; NaN gives 0, as in ATen
  // Of floating-point types:
  kSqrt,
  kRsqrt,       ///< 1 / sqrt(a)
  kReciprocal,  ///< 1 / a
  kFloor,
  kCeil,
  kRound,  ///< to nearest, ties to even
  kTrunc,
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kNormalCdf,  ///< (1 + erf(a / sqrt 2)) / 2; of kFloat only as near as bfloat16 tells
               ///< (cdf_table.h)
  kLgamma,
  // Of kFloat: to the nearest value of a narrower type, ties to even.
  kRoundHalf,
  kRoundBFloat16,
  // Of kInt32: modulo 2^8 or 2^16, into the narrower type's range.
  kWrapUInt8,
  kWrapInt8,
  kWrapInt16,
  // Of kMask and integers: all bits, which is "not" for kMask.
  kNot,
  // Result kMask; of floating-point types.
  kIsNan,
  // Conversions from Instruction::type, as static_cast does; to kMask: a != 0 (NaN is true). What
  // an integer type cannot hold gives its lowest value, integers are cut.
  kToMask,
  kToInt32,
  kToInt64,
  kToFloat,
  kToDouble,

  // Binary: a, b. Of all types but kMask; integers wrap around:
  kAdd,
  kSub,
  kMul,
  kMaximum,  ///< NaN if one is; b if they are equal (zeros of both signs are)
  kMinimum,
  // Of floating-point types:
  kDiv,
  kFMax,  ///< the other one if one is NaN; b if they are equal
  kFMin,
  kPow,
  kAtan2,
  kHypot,
  kFmod,  ///< the sign of a
  kCopySign,
  // Of kMask and integers:
  kAnd,
  kOr,
  kXor,
  // Of integers: by all the bits there are if b is negative or too large, as in ATen.
  kShiftLeft,
  kShiftRight,  ///< the sign is shifted in
  // Result kMask; kMask operands for kEq and kNe only.
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,

  // Ternary.
  kSelect,  ///< a (kMask) ? b : c, of any type
  kMulAdd,  ///< a * b + c rounded once; floating point: what ATen itself computes so (lerp,
            ///< addcmul)

  // Reductions of a over the columns of a row: the result is one value for the whole row. Of all
  // types but kMask. Lane i mod kReductionLanes takes element i as operand b, in ascending order;
  // then the lower half of the lanes takes the upper half (lane j takes lane j + n/2), until one is
  // left. Lanes start at 0, and at the type's lowest or highest value (infinities for floating
  // point).
  kSum,
  kMax,  ///< as kMaximum
  kMin,

  // Parts of functions, of kFloat; only machine code is made of them (jit/expand.h, and
  // vector_formulas.h for what they are).
  kLeast,     ///< a < b ? a : b, so b if one is NaN
  kGreatest,  ///< a > b ? a : b
  kScale,     ///< a 2^b, rounded once
  kExponent,  ///< floor(log2 |a|); of 0 and infinity the logarithm itself
  kFraction,  ///< |a| 2^-n in [3/4, 3/2); NaN for negative a, 1 for 0 and infinity
  kErfTerm,   ///< of erf_table.h: row b, which is no operand here, column by the lowest bits of a
  kCdfTerm,   ///< the same of cdf_table.h
};

inline constexpr std::int64_t kReductionLanes = 64;

/// How many operands an operation has: 1 to 3.
[[nodiscard]] inline int operand_count(Op op) noexcept {
  if (op == Op::kSelect || op == Op::kMulAdd) return 3;
  const bool part = op >= Op::kLeast && op <= Op::kScale;
  return part || (op >= Op::kAdd && op <= Op::kGe) ? 2 : 1;
}
[[nodiscard]] inline bool is_reduction(Op op) noexcept { return op >= Op::kSum && op <= Op::kMin; }
/// Whether there is an `op` for operands of `type`.
[[nodiscard]] bool is_defined(Op op, Type type) noexcept;
/// The type of the result of `op` for operands of `type`.
[[nodiscard]] inline Type result_type(Op op, Type type) noexcept {
  switch (op) {
    case Op::kIsNan:
    case Op::kToMask:
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
      return Type::kMask;
    case Op::kToInt32:
      return Type::kInt32;
    case Op::kToInt64:
      return Type::kInt64;
    case Op::kToFloat:
      return Type::kFloat;
    case Op::kToDouble:
      return Type::kDouble;
    default:
      return type;
  }
}
/// "add", "to_float", ...
[[nodiscard]] std::string_view name_of(Op op) noexcept;

}  // namespace loom::fusion
