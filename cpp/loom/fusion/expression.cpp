// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/expression.h"

#include <algorithm>

namespace loom::fusion {

Node Expression::add(const Entry& entry) noexcept {
  if (entry_count_ == kMaxNodes) {
    fits_ = false;
    return {0, entry.type};
  }
  entries_[entry_count_] = entry;
  return {entry_count_++, entry.type};
}

Node Expression::load(const TensorAccess& from) noexcept {
  if (load_count_ == kMaxLoads) {
    fits_ = false;
    return {0, register_type(from.dtype)};
  }
  loads_[load_count_] = from;
  Entry entry;
  entry.kind = Kind::kLoad;
  entry.load = load_count_++;
  entry.type = register_type(from.dtype);
  return add(entry);
}

Node Expression::add_number(Type type, Param value) noexcept {
  Entry entry;
  entry.kind = Kind::kNumber;
  entry.type = type;
  entry.number = value;
  return add(entry);
}

// All bits of a parameter are defined: equal numbers are recognised by them.
Node Expression::number(float value) noexcept {
  Param param{.int64 = 0};
  param.float32 = value;
  return add_number(Type::kFloat, param);
}
Node Expression::number(double value) noexcept {
  return add_number(Type::kDouble, {.float64 = value});
}
Node Expression::number(std::int32_t value) noexcept {
  Param param{.int64 = 0};
  param.int32 = value;
  return add_number(Type::kInt32, param);
}
Node Expression::number(std::int64_t value) noexcept {
  return add_number(Type::kInt64, {.int64 = value});
}
Node Expression::number(bool value) noexcept {
  Param param{.int64 = 0};
  param.mask = value;
  return add_number(Type::kMask, param);
}
Node Expression::number(Type type, double value) noexcept {
  switch (type) {
    case Type::kMask:
      return number(value != 0);
    case Type::kInt32:
      return number(static_cast<std::int32_t>(value));
    case Type::kInt64:
      return number(static_cast<std::int64_t>(value));
    case Type::kFloat:
      return number(static_cast<float>(value));
    case Type::kDouble:
      break;
  }
  return number(value);
}

Node Expression::apply(Op op, Node a, Node b, Node c) noexcept {
  Entry entry;
  entry.kind = Kind::kResult;
  const Type operands = op == Op::kSelect ? b.type : a.type;
  entry.instruction = {op, operands, a.index, b.index, c.index};
  entry.type = result_type(op, operands);
  return add(entry);
}

Node Expression::to(Type type, Node a) noexcept {
  if (a.type == type) return a;
  constexpr Op kConversions[] = {Op::kToMask, Op::kToInt32, Op::kToInt64, Op::kToFloat,
                                 Op::kToDouble};
  return apply(kConversions[static_cast<std::size_t>(type)], a);
}

Node Expression::to(DType dtype, Node a) noexcept {
  // As in ATen: the lowest bits of what 64 bits hold. (Of a float that 32 bits do not hold they are
  // 0 either way.)
  if (dtype == DType::kUInt8 && a.type == Type::kDouble) a = to(Type::kInt64, a);
  const Node value = to(register_type(dtype), a);
  switch (dtype) {
    case DType::kHalf:
      return apply(Op::kRoundHalf, value);
    case DType::kBFloat16:
      return apply(Op::kRoundBFloat16, value);
    case DType::kUInt8:
      return apply(Op::kWrapUInt8, value);
    case DType::kInt8:
      return apply(Op::kWrapInt8, value);
    case DType::kInt16:
      return apply(Op::kWrapInt16, value);
    default:
      return value;
  }
}

void Expression::store(Node value, const TensorAccess& to) noexcept {
  if (store_count_ == kMaxStores) {
    fits_ = false;
    return;
  }
  stores_[store_count_++] = {to, value.index};
}

}  // namespace loom::fusion
