// SPDX-License-Identifier: BSD-3-Clause
// Masks are vectors of lanes that are all ones or zeros: 32 bits each, as AVX2 compares numbers.
#include "loom/fusion/jit/avx2.h"

namespace loom::fusion::jit {

using Xbyak::Xmm;
using Xbyak::Ymm;

/// 64-bit lanes to 32-bit lanes, the lower half of each.
void Avx2::narrow_mask(const Xmm& result, const Xmm& mask) {
  constexpr int kEven = 0x88;
  vextractf128(Xmm(13), Ymm(mask.getIdx()), 1);
  vshufps(Xmm(result.getIdx()), Xmm(mask.getIdx()), Xmm(13), kEven);
}

void Avx2::compare_integers(Op op, Type type, const Xmm& result, const Xmm& a, const Xmm& b) {
  const bool wide = type == Type::kInt64;
  const auto greater = [&](const Xmm& x, const Xmm& y) {
    wide ? vpcmpgtq(result, x, y) : vpcmpgtd(result, x, y);
  };
  const auto negate = [&] {
    const Xmm ones = temporary(15, result);
    vpcmpeqd(ones, ones, ones);
    vpxor(result, result, ones);
  };
  switch (op) {
    case Op::kGt:
      return greater(a, b);
    case Op::kLt:
      return greater(b, a);
    case Op::kLe:
      greater(a, b);
      return negate();
    case Op::kGe:
      greater(b, a);
      return negate();
    default:
      wide ? vpcmpeqq(result, a, b) : vpcmpeqd(result, a, b);
      if (op == Op::kNe) negate();
  }
}

/// Operations on vectors whose result is a mask.
bool Avx2::compare(const Instruction& instruction, int result, int a, int b) {
  constexpr std::uint8_t kFloating[] = {0x00, 0x04, 0x11, 0x12, 0x1E, 0x1D};  // for vcmpps
  const Type type = instruction.type;
  const bool wide = size_of(type) == 8;
  const Xmm x = reg(a, type), t = reg(14, type);
  Op op = instruction.op;
  Xmm y = reg(b, type);
  if (op == Op::kToMask) {
    op = Op::kNe;
    y = reg(15, type);
    zero(y);
  } else if (op != Op::kIsNan && (op < Op::kEq || op > Op::kGe)) {
    return false;
  }
  if (op == Op::kIsNan) {
    unordered(type, t, x);
  } else if (type == Type::kInt32 || type == Type::kInt64) {
    compare_integers(op, type, t, x, y);
  } else {
    const std::uint8_t predicate =
        kFloating[static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::kEq)];
    wide ? vcmppd(t, x, y, predicate) : vcmpps(t, x, y, predicate);
  }
  const Xmm r = reg(result, Type::kMask);
  wide ? narrow_mask(r, t) : vmovaps(r, t);
  return true;
}

void Avx2::select(Type type, int result, int a, int b, int c) {
  Xmm mask = reg(a, Type::kMask);
  if (size_of(type) == 8) {
    vpmovsxdq(Ymm(15), mask);
    mask = Ymm(15);
  }
  blend(type, reg(result, type), reg(c, type), reg(b, type), mask);
}

void Avx2::compute_mask(Op op, int result, int a, int b, int c) {
  const Type type = Type::kMask;
  const Xmm r = reg(result, type), x = reg(a, type), y = reg(b, type), t = reg(15, type);
  switch (op) {
    case Op::kNot:
      vpcmpeqd(t, t, t);
      return vpxor(r, x, t);
    case Op::kAnd:
      return vpand(r, x, y);
    case Op::kOr:
      return vpor(r, x, y);
    case Op::kXor:
    case Op::kNe:
      return vpxor(r, x, y);
    case Op::kEq:
      return vpcmpeqd(r, x, y);
    case Op::kSelect:
      return select(type, result, a, b, c);
    case Op::kToMask:
      return move(type, result, a);
    default:
      return convert_mask(op, result, a);
  }
}

void Avx2::convert_mask(Op op, int result, int a) {
  const Type type = result_type(op, Type::kMask);
  const Xmm r = reg(result, type), mask = reg(15, type);
  if (size_of(type) == 8) {
    vpmovsxdq(mask, reg(a, Type::kMask));
  } else {
    vmovaps(mask, reg(a, Type::kMask));
  }
  broadcast(type, result, number(Number::kOne, type));
  vpand(r, r, mask);
}

}  // namespace loom::fusion::jit
