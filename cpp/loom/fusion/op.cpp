// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/op.h"

#include <array>

namespace loom::fusion {

bool is_defined(Op op, Type type) noexcept {
  const bool floating = type == Type::kFloat || type == Type::kDouble;
  if (op > Op::kMin) return false;
  if (op <= Op::kSign) return type != Type::kMask;
  if (op <= Op::kLgamma) return floating;
  if (op <= Op::kRoundBFloat16) return type == Type::kFloat;
  if (op <= Op::kWrapInt16) return type == Type::kInt32;
  if (op == Op::kNot || (op >= Op::kAnd && op <= Op::kXor)) return !floating;
  if (op == Op::kShiftLeft || op == Op::kShiftRight) {
    return type == Type::kInt32 || type == Type::kInt64;
  }
  if (op == Op::kIsNan || op == Op::kMulAdd) return floating;
  if (op >= Op::kDiv && op <= Op::kCopySign) return floating;
  if (op <= Op::kToDouble || op == Op::kEq || op == Op::kNe || op == Op::kSelect) return true;
  return type != Type::kMask;
}

std::string_view name_of(Op op) noexcept {
  constexpr std::string_view kNames[] = {"neg",        "abs",
                                         "sign",       "sqrt",
                                         "rsqrt",      "reciprocal",
                                         "floor",      "ceil",
                                         "round",      "trunc",
                                         "exp",        "exp2",
                                         "expm1",      "log",
                                         "log2",       "log10",
                                         "log1p",      "sin",
                                         "cos",        "tan",
                                         "asin",       "acos",
                                         "atan",       "sinh",
                                         "cosh",       "tanh",
                                         "asinh",      "acosh",
                                         "atanh",      "erf",
                                         "normal_cdf", "lgamma",
                                         "round_half", "round_bfloat16",
                                         "wrap_uint8", "wrap_int8",
                                         "wrap_int16", "not",
                                         "isnan",      "to_mask",
                                         "to_int32",   "to_int64",
                                         "to_float",   "to_double",
                                         "add",        "sub",
                                         "mul",        "maximum",
                                         "minimum",    "div",
                                         "fmax",       "fmin",
                                         "pow",        "atan2",
                                         "hypot",      "fmod",
                                         "copysign",   "and",
                                         "or",         "xor",
                                         "shift_left", "shift_right",
                                         "eq",         "ne",
                                         "lt",         "le",
                                         "gt",         "ge",
                                         "select",     "mul_add",
                                         "sum",        "max",
                                         "min",        "least",
                                         "greatest",   "scale",
                                         "exponent",   "fraction",
                                         "erf_term",   "cdf_term"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Op::kCdfTerm) + 1);
  return kNames[static_cast<std::size_t>(op)];
}

}  // namespace loom::fusion
