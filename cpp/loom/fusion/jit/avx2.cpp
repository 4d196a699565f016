// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/avx2.h"

namespace loom::fusion::jit {

using Xbyak::Xmm;
using Xbyak::Ymm;

void Avx2::unordered(Type type, const Xmm& result, const Xmm& a) {
  constexpr int kUnordered = 3;
  type == Type::kFloat ? vcmpps(result, a, a, kUnordered) : vcmppd(result, a, a, kUnordered);
}

/// mask ? chosen : other, for lanes as wide as those of `type`.
void Avx2::blend(Type type, const Xmm& result, const Xmm& other, const Xmm& chosen,
                 const Xmm& mask) {
  size_of(type) == 8 ? vblendvpd(result, other, chosen, mask)
                     : vblendvps(result, other, chosen, mask);
}

/// A NaN if one is; of equals, b.
void Avx2::extreme(bool maximum, Type type, const Xmm& result, const Xmm& a, const Xmm& b) {
  const Xmm t = temporary(14, result), u = temporary(15, result);
  switch (type) {
    case Type::kInt32:
      return maximum ? vpmaxsd(result, a, b) : vpminsd(result, a, b);
    case Type::kInt64:
      maximum ? vpcmpgtq(t, a, b) : vpcmpgtq(t, b, a);
      return blend(type, result, b, a, t);
    case Type::kFloat:
      maximum ? vmaxps(t, a, b) : vminps(t, a, b);  // b if one is a NaN
      break;
    default:
      maximum ? vmaxpd(t, a, b) : vminpd(t, a, b);
  }
  unordered(type, u, a);
  blend(type, result, t, a, u);
}

void Avx2::combine(Op op, Type type, const Xmm& result, const Xmm& a, const Xmm& b) {
  if (op != Op::kSum) return extreme(op == Op::kMax, type, result, a, b);
  switch (type) {
    case Type::kInt32:
      return vpaddd(result, a, b);
    case Type::kInt64:
      return vpaddq(result, a, b);
    case Type::kFloat:
      return vaddps(result, a, b);
    default:
      return vaddpd(result, a, b);
  }
}

void Avx2::accumulate(Op op, Type type, int accumulator, int value, Access access) {
  const Xmm into = reg(accumulator, type), x = reg(value, type);
  if (access != Access::kTail) return combine(op, type, into, into, x);
  const Xmm t = reg(13, type), mask = reg(14, type);
  combine(op, type, t, into, x);
  vmovups(mask, ptr[tail_mask(size_of(type))]);
  blend(type, into, into, t, mask);
}

void Avx2::round_to_bfloat16(const Xmm& result, const Xmm& a) {
  const Xmm t = temporary(13, a), number = temporary(14, a);
  vpsrld(t, a, 16);
  broadcast_word(number, offsetof(Constants, odd));
  vpand(t, t, number);
  vpaddd(t, t, a);
  broadcast_word(number, offsetof(Constants, half_ulp));
  vpaddd(t, t, number);
  broadcast_word(number, offsetof(Constants, high_half));
  vpand(t, t, number);
  unordered(Type::kFloat, number, a);
  broadcast_word(result, offsetof(Constants, quiet_nan));
  vblendvps(result, t, result, number);
}

/// One lane at a time: there are no such instructions for vectors.
void Avx2::convert_int64(Type from, Type to, int result, int a) {
  const int step = static_cast<int>(size_of(from)), out = static_cast<int>(size_of(to));
  const Xmm x(14);
  spill(from, a, bounce());
  zero(x);
  for (int k = 0; k < lanes(); ++k) {
    // In an order in which no result is stored over what is still to be read.
    const int i = out > step ? lanes() - 1 - k : k;
    const Address in_lane = bounce() + i * step, out_lane = bounce() + i * out;
    if (from == Type::kInt64) {
      mov(rax, ptr[in_lane]);
      if (to == Type::kFloat) {
        vcvtsi2ss(x, x, rax);
        vmovss(ptr[out_lane], x);
      } else {
        vcvtsi2sd(x, x, rax);
        vmovsd(ptr[out_lane], x);
      }
    } else {
      from == Type::kFloat ? vcvttss2si(rax, ptr[in_lane]) : vcvttsd2si(rax, ptr[in_lane]);
      mov(ptr[out_lane], rax);
    }
  }
  fill(to, result, bounce());
}

void Avx2::convert(const Instruction& instruction, int result, int a) {
  const Type from = instruction.type, to = result_type(instruction.op, from);
  if (from == to) return move(from, result, a);
  const Xmm r = reg(result, to), x = reg(a, from);
  const bool from_float = from == Type::kFloat, from_int = from == Type::kInt32;
  if (to == Type::kInt64) {
    return from_int ? vpmovsxdq(r, x) : convert_int64(from, to, result, a);
  }
  if (from == Type::kInt64) {
    return to == Type::kInt32 ? narrow_mask(r, x) : convert_int64(from, to, result, a);
  }
  switch (to) {
    case Type::kInt32:
      return from_float ? vcvttps2dq(r, x) : vcvttpd2dq(r, x);
    case Type::kFloat:
      return from_int ? vcvtdq2ps(r, x) : vcvtpd2ps(r, x);
    default:
      return from_int ? vcvtdq2pd(r, x) : vcvtps2pd(r, x);
  }
}

bool Avx2::compute_int64(const Instruction& instruction, const Xmm& result, const Xmm& a,
                         const Xmm& b) {
  if (instruction.type != Type::kInt64) return false;
  const Ymm t(14), u(15);
  switch (instruction.op) {
    case Op::kAdd:
      vpaddq(result, a, b);
      return true;
    case Op::kSub:
      vpsubq(result, a, b);
      return true;
    case Op::kMul:  // low halves, and both products of a high and a low half shifted up
      vpsrlq(t, a, 32);
      vpmuludq(t, t, b);
      vpsrlq(u, b, 32);
      vpmuludq(u, u, a);
      vpaddq(t, t, u);
      vpsllq(t, t, 32);
      vpmuludq(u, a, b);
      vpaddq(result, t, u);
      return true;
    case Op::kNeg:
    case Op::kAbs:
      zero(t);
      vpsubq(t, t, a);
      if (instruction.op == Op::kNeg) {
        vmovaps(result, t);
      } else {
        vblendvpd(result, a, t, a);
      }
      return true;
    default:
      return false;
  }
}

/// Operations on the bits of a number.
bool Avx2::compute_bits(const Instruction& instruction, const Xmm& result, const Xmm& a,
                        const Xmm& b) {
  const Type type = instruction.type;
  const bool is_int = type == Type::kInt32 || type == Type::kInt64;
  const bool wide = size_of(type) == 8;
  const Xmm t = reg(14, type), u = reg(15, type);
  switch (instruction.op) {
    case Op::kNeg:
      if (is_int) {
        zero(t);
        vpsubd(result, t, a);
      } else {
        broadcast(type, 14, number(Number::kSignBit, type));
        vpxor(result, a, t);
      }
      return true;
    case Op::kAbs:
      if (is_int) {
        vpabsd(result, a);
      } else {
        broadcast(type, 14, number(Number::kOtherBits, type));
        vpand(result, a, t);
      }
      return true;
    case Op::kCopySign:
      broadcast(type, 14, number(Number::kOtherBits, type));
      vpand(u, t, a);
      vpandn(t, t, b);
      vpor(result, t, u);
      return true;
    case Op::kNot:
      vpcmpeqd(t, t, t);
      vpxor(result, a, t);
      return true;
    case Op::kAnd:
      vpand(result, a, b);
      return true;
    case Op::kOr:
      vpor(result, a, b);
      return true;
    case Op::kXor:
      vpxor(result, a, b);
      return true;
    case Op::kShiftLeft:
      wide ? vpsllvq(result, a, b) : vpsllvd(result, a, b);
      return true;
    case Op::kShiftRight:
      if (!wide) {
        vpsravd(result, a, b);
        return true;
      }
      // Negative numbers are shifted as their complements.
      vpxor(u, u, u);
      vpcmpgtq(u, u, a);
      vpxor(t, a, u);
      vpsrlvq(t, t, b);
      vpxor(result, t, u);
      return true;
    case Op::kWrapUInt8:
      broadcast_word(t, offsetof(Constants, low_byte));
      vpand(result, a, t);
      return true;
    default:
      return false;
  }
}

void Avx2::sign(Type type, const Xmm& result, const Xmm& a) {
  const Xmm above = temporary(13, a), below = temporary(14, a), none = temporary(15, a);
  zero(none);
  if (type == Type::kInt32 || type == Type::kInt64) {
    const bool wide = type == Type::kInt64;
    wide ? vpcmpgtq(above, a, none) : vpcmpgtd(above, a, none);
    wide ? vpcmpgtq(below, none, a) : vpcmpgtd(below, none, a);
    return wide ? vpsubq(result, below, above) : vpsubd(result, below, above);
  }
  constexpr int kLess = 0x11;
  const bool wide = type == Type::kDouble;
  wide ? vcmppd(above, none, a, kLess) : vcmpps(above, none, a, kLess);
  wide ? vcmppd(below, a, none, kLess) : vcmpps(below, a, none, kLess);
  broadcast(type, 15, number(Number::kOne, type));
  vpand(above, above, none);
  broadcast(type, 15, number(Number::kMinusOne, type));
  vpand(below, below, none);
  vpor(result, above, below);
}

void Avx2::compute_rest(const Instruction& instruction, const Xmm& result, const Xmm& a,
                        const Xmm& b) {
  const Type type = instruction.type;
  const Op op = instruction.op;
  const bool wide = size_of(type) == 8;
  const Xmm t = reg(14, type), u = reg(15, type);
  switch (op) {
    case Op::kSign:
      return sign(type, result, a);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return wide ? vroundpd(result, a, rounding_of(op)) : vroundps(result, a, rounding_of(op));
    case Op::kRoundHalf:
      vcvtps2ph(Xmm(15), a, 0);
      return vcvtph2ps(result, Xmm(15));
    case Op::kRoundBFloat16:
      round_to_bfloat16(u, a);
      return vmovaps(result, u);
    case Op::kMaximum:
    case Op::kMinimum:
      return extreme(op == Op::kMaximum, type, result, a, b);
    default: {  // kFMax, kFMin: the vector instruction gives b if one is a NaN
      const bool maximum = op == Op::kFMax;
      if (wide) {
        maximum ? vmaxpd(t, a, b) : vminpd(t, a, b);
      } else {
        maximum ? vmaxps(t, a, b) : vminps(t, a, b);
      }
      unordered(type, u, b);
      return blend(type, result, t, a, u);
    }
  }
}

void Avx2::compute(const Instruction& instruction, int result, int a, int b, int c) {
  const Type type = instruction.type;
  const Op op = instruction.op;
  if (type == Type::kMask) return compute_mask(op, result, a, b, c);
  if (compare(instruction, result, a, b)) return;
  if (op >= Op::kToInt32 && op <= Op::kToDouble) return convert(instruction, result, a);
  if (op == Op::kSelect) return select(type, result, a, b, c);
  const Xmm r = reg(result, type), x = reg(a, type), y = reg(b, type), z = reg(c, type);
  if (compute_alike(instruction, r, x, y, z) || compute_int64(instruction, r, x, y)) return;
  if (compute_bits(instruction, r, x, y)) return;
  compute_rest(instruction, r, x, y);
}

std::unique_ptr<VectorCode> make_avx2(std::size_t bytes, void* buffer, bool wide) {
  return std::make_unique<Avx2>(bytes, buffer, wide);
}

}  // namespace loom::fusion::jit
