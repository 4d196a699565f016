// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/avx512.h"

namespace loom::fusion::jit {

using Xbyak::Opmask;
using Xbyak::Xmm;

void Avx512::move(Type type, int result, int value) {
  if (result == value) return;
  type == Type::kMask ? kmovw(mask(result), mask(value))
                      : vmovaps(reg(result, type), reg(value, type));
}

void Avx512::unordered(Type type, const Opmask& result, const Xmm& a) {
  constexpr int kUnordered = 3;
  type == Type::kFloat ? vcmpps(result, a, a, kUnordered) : vcmppd(result, a, a, kUnordered);
}

/// A NaN if one is; of equals, b.
void Avx512::extreme(bool maximum, Type type, const Xmm& result, const Xmm& a, const Xmm& b) {
  const Xmm t = t30_.copyAndSetKind(result.getKind());
  switch (type) {
    case Type::kInt32:
      return maximum ? vpmaxsd(result, a, b) : vpminsd(result, a, b);
    case Type::kInt64:
      return maximum ? vpmaxsq(result, a, b) : vpminsq(result, a, b);
    case Type::kFloat:
      unordered(type, k2, a);
      maximum ? vmaxps(t, a, b) : vminps(t, a, b);  // b if one is a NaN
      return vblendmps(result | k2, t, a);
    default:
      unordered(type, k2, a);
      maximum ? vmaxpd(t, a, b) : vminpd(t, a, b);
      return vblendmpd(result | k2, t, a);
  }
}

void Avx512::combine(Op op, Type type, const Xmm& result, const Xmm& a, const Xmm& b) {
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

void Avx512::accumulate(Op op, Type type, int accumulator, int value, Access access) {
  const Xmm into = reg(accumulator, type), x = reg(value, type);
  if (access != Access::kTail) return combine(op, type, into, into, x);
  const Xmm t = reg(29, type);
  combine(op, type, t, into, x);
  size_of(type) == 8 ? vmovapd(into | k1, t) : vmovaps(into | k1, t);
}

void Avx512::round_to_bfloat16(const Xmm& result, const Xmm& a) {
  const Xmm t = t30_.copyAndSetKind(a.getKind());
  vpsrld(t, a, 16);
  vpandd(t, t, all(r15 + static_cast<int>(offsetof(Constants, odd))));
  vpaddd(t, t, a);
  unordered(Type::kFloat, k2, a);
  vpaddd(t, t, all(r15 + static_cast<int>(offsetof(Constants, half_ulp))));
  vpandd(result, t, all(r15 + static_cast<int>(offsetof(Constants, high_half))));
  vbroadcastss(result | k2, ptr[r15 + static_cast<int>(offsetof(Constants, quiet_nan))]);
}

void Avx512::compare_vectors(Type type, const Opmask& result, const Xmm& a, const Xmm& b, Op op) {
  // The predicates of vcmpps (quiet, false for NaN but for kNe) and of vpcmpd.
  constexpr std::uint8_t kFloating[] = {0x00, 0x04, 0x11, 0x12, 0x1E, 0x1D};
  constexpr std::uint8_t kIntegers[] = {0, 4, 1, 2, 6, 5};
  const auto i = static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::kEq);
  switch (type) {
    case Type::kInt32:
      return vpcmpd(result, a, b, kIntegers[i]);
    case Type::kInt64:
      return vpcmpq(result, a, b, kIntegers[i]);
    case Type::kFloat:
      return vcmpps(result, a, b, kFloating[i]);
    default:
      return vcmppd(result, a, b, kFloating[i]);
  }
}

/// Operations on vectors whose result is a mask.
bool Avx512::compare(const Instruction& instruction, int result, int a, int b) {
  const Type type = instruction.type;
  const Xmm x = reg(a, type);
  if (instruction.op == Op::kIsNan) {
    unordered(type, mask(result), x);
    return true;
  }
  if (instruction.op == Op::kToMask) {
    const Xmm zero = reg(31, type);
    vpxord(zero, zero, zero);
    compare_vectors(type, mask(result), x, zero, Op::kNe);
    return true;
  }
  if (instruction.op < Op::kEq || instruction.op > Op::kGe) return false;
  compare_vectors(type, mask(result), x, reg(b, type), instruction.op);
  return true;
}

void Avx512::compute_mask(Op op, int result, int a, int b, int c) {
  const Opmask r = mask(result), x = mask(a), y = mask(b), z = mask(c);
  switch (op) {
    case Op::kNot:
      return knotw(r, x);
    case Op::kAnd:
      return kandw(r, x, y);
    case Op::kOr:
      return korw(r, x, y);
    case Op::kXor:
    case Op::kNe:
      return kxorw(r, x, y);
    case Op::kEq:
      return kxnorw(r, x, y);
    case Op::kSelect:
      kandnw(k2, x, z);
      kandw(k3, x, y);
      return korw(r, k2, k3);
    case Op::kToMask:
      return move(Type::kMask, result, a);
    default:
      return convert_mask(op, result, a);
  }
}

void Avx512::convert_mask(Op op, int result, int a) {
  const Type type = result_type(op, Type::kMask);
  const Xmm x = reg(result, type) | mask(a) | T_z;
  const Address one = number(Number::kOne, type);
  size_of(type) == 8 ? vpbroadcastq(x, ptr[one]) : vbroadcastss(x, ptr[one]);
}

void Avx512::convert(const Instruction& instruction, int result, int a) {
  const Type from = instruction.type, to = result_type(instruction.op, from);
  if (from == to) return move(from, result, a);
  const Xmm r = reg(result, to), x = reg(a, from);
  switch (to) {
    case Type::kInt32:
      return from == Type::kFloat    ? vcvttps2dq(r, x)
             : from == Type::kDouble ? vcvttpd2dq(r, x)
                                     : vpmovqd(r, x);
    case Type::kInt64:
      return from == Type::kFloat    ? vcvttps2qq(r, x)
             : from == Type::kDouble ? vcvttpd2qq(r, x)
                                     : vpmovsxdq(r, x);
    case Type::kFloat:
      return from == Type::kInt32    ? vcvtdq2ps(r, x)
             : from == Type::kDouble ? vcvtpd2ps(r, x)
                                     : vcvtqq2ps(r, x);
    default:
      return from == Type::kInt32   ? vcvtdq2pd(r, x)
             : from == Type::kFloat ? vcvtps2pd(r, x)
                                    : vcvtqq2pd(r, x);
  }
}

bool Avx512::compute_int64(const Instruction& instruction, const Xmm& result, const Xmm& a,
                           const Xmm& b, const Xmm& c) {
  if (instruction.type != Type::kInt64) return false;
  const Xmm t = reg(31, Type::kInt64);
  switch (instruction.op) {
    case Op::kAdd:
      vpaddq(result, a, b);
      return true;
    case Op::kSub:
      vpsubq(result, a, b);
      return true;
    case Op::kMul:
      vpmullq(result, a, b);
      return true;
    case Op::kMulAdd:
      vpmullq(t, a, b);
      vpaddq(result, t, c);
      return true;
    default:
      return false;
  }
}

/// Operations on the bits of a number.
bool Avx512::compute_bits(const Instruction& instruction, const Xmm& result, const Xmm& a,
                          const Xmm& b) {
  const Type type = instruction.type;
  const bool wide = size_of(type) == 8;
  const bool is_int = type == Type::kInt32 || type == Type::kInt64;
  const Xbyak::Address sign_bit = all(number(Number::kSignBit, type));
  const Xbyak::Address other_bits = all(number(Number::kOtherBits, type));
  const Xmm t = reg(31, type);
  switch (instruction.op) {
    case Op::kNeg:
      if (is_int) {
        vpxord(t, t, t);
        wide ? vpsubq(result, t, a) : vpsubd(result, t, a);
      } else {
        wide ? vpxorq(result, a, sign_bit) : vpxord(result, a, sign_bit);
      }
      return true;
    case Op::kAbs:
      if (is_int) {
        wide ? vpabsq(result, a) : vpabsd(result, a);
      } else {
        wide ? vpandq(result, a, other_bits) : vpandd(result, a, other_bits);
      }
      return true;
    case Op::kCopySign: {
      constexpr std::uint8_t kFromMask = 0xCA;  // t ? a : b, bit by bit
      broadcast(type, 31, number(Number::kOtherBits, type));
      vpternlogd(t, a, b, kFromMask);
      vmovaps(result, t);
      return true;
    }
    case Op::kNot: {
      constexpr std::uint8_t kNotThird = 0x55;
      vpternlogd(result, a, a, kNotThird);
      return true;
    }
    case Op::kAnd:
      vpandd(result, a, b);
      return true;
    case Op::kOr:
      vpord(result, a, b);
      return true;
    case Op::kXor:
      vpxord(result, a, b);
      return true;
    case Op::kShiftLeft:
      wide ? vpsllvq(result, a, b) : vpsllvd(result, a, b);
      return true;
    case Op::kShiftRight:
      wide ? vpsravq(result, a, b) : vpsravd(result, a, b);
      return true;
    case Op::kWrapUInt8:
      vpandd(result, a, all(r15 + static_cast<int>(offsetof(Constants, low_byte))));
      return true;
    default:
      return false;
  }
}

void Avx512::sign(Type type, const Xmm& result, const Xmm& a) {
  const Xmm zero = reg(31, type);
  vpxord(zero, zero, zero);
  compare_vectors(type, k2, a, zero, Op::kGt);
  compare_vectors(type, k3, a, zero, Op::kLt);
  const Address one = number(Number::kOne, type), minus = number(Number::kMinusOne, type);
  if (size_of(type) == 8) {
    vpbroadcastq(result | k2 | T_z, ptr[one]);
    vpbroadcastq(result | k3, ptr[minus]);
  } else {
    vbroadcastss(result | k2 | T_z, ptr[one]);
    vbroadcastss(result | k3, ptr[minus]);
  }
}

/// Parts of functions.
bool Avx512::compute_part(const Instruction& instruction, const Xmm& result, const Xmm& a,
                          const Xmm& b) {
  constexpr std::uint8_t kFromThreeQuarters = 3, kNanIfNegative = 2 << 2;
  switch (instruction.op) {
    case Op::kLeast:
      vminps(result, a, b);
      return true;
    case Op::kGreatest:
      vmaxps(result, a, b);
      return true;
    case Op::kScale:
      vscalefps(result, a, b);
      return true;
    case Op::kExponent:
      vgetexpps(result, a);
      return true;
    case Op::kFraction:
      vgetmantps(result, a, kFromThreeQuarters | kNanIfNegative);
      return true;
    case Op::kErfTerm: {
      // The table has 16 columns, however many lanes there are.
      const int row = static_cast<int>(offsetof(Constants, erf)) + 64 * instruction.b;
      vpermps(Xbyak::Zmm(result.getIdx()), Xbyak::Zmm(a.getIdx()), ptr[r15 + row]);
      return true;
    }
    case Op::kCdfTerm: {
      // 32 columns, in two registers.
      const int row = static_cast<int>(offsetof(Constants, cdf)) + 128 * instruction.b;
      const Xbyak::Zmm which(a.getIdx()), t(31);
      vmovaps(t, ptr[r15 + row]);
      vpermt2ps(t, which, ptr[r15 + row + 64]);
      vmovaps(Xbyak::Zmm(result.getIdx()), t);
      return true;
    }
    default:
      return false;
  }
}

void Avx512::compute_rest(const Instruction& instruction, const Xmm& result, const Xmm& a,
                          const Xmm& b) {
  const Type type = instruction.type;
  const bool wide = size_of(type) == 8;
  switch (instruction.op) {
    case Op::kSign:
      return sign(type, result, a);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return wide ? vrndscalepd(result, a, rounding_of(instruction.op))
                  : vrndscaleps(result, a, rounding_of(instruction.op));
    case Op::kRoundHalf: {
      const Xmm t = sized(31, lanes() * 2);
      vcvtps2ph(t, a, 0);
      return vcvtph2ps(result, t);
    }
    case Op::kRoundBFloat16:
      round_to_bfloat16(reg(31, type), a);
      return vmovaps(result, reg(31, type));
    case Op::kMaximum:
    case Op::kMinimum:
      return extreme(instruction.op == Op::kMaximum, type, result, a, b);
    default: {  // kFMax, kFMin: the vector instruction gives b if one is a NaN
      const bool maximum = instruction.op == Op::kFMax;
      const Xmm t = reg(30, type);
      unordered(type, k2, b);
      if (wide) {
        maximum ? vmaxpd(t, a, b) : vminpd(t, a, b);
        return vblendmpd(result | k2, t, a);
      }
      maximum ? vmaxps(t, a, b) : vminps(t, a, b);
      return vblendmps(result | k2, t, a);
    }
  }
}

void Avx512::compute(const Instruction& instruction, int result, int a, int b, int c) {
  const Type type = instruction.type;
  const Op op = instruction.op;
  if (type == Type::kMask) return compute_mask(op, result, a, b, c);
  if (compare(instruction, result, a, b)) return;
  if (op >= Op::kToInt32 && op <= Op::kToDouble) return convert(instruction, result, a);
  const Xmm r = reg(result, type);
  if (op == Op::kSelect) {
    const Xmm chosen = reg(b, type), other = reg(c, type);
    return size_of(type) == 8 ? vblendmpd(r | mask(a), other, chosen)
                              : vblendmps(r | mask(a), other, chosen);
  }
  const Xmm x = reg(a, type), y = reg(b, type), z = reg(c, type);
  if (compute_alike(instruction, r, x, y, z) || compute_int64(instruction, r, x, y, z)) return;
  if (compute_bits(instruction, r, x, y) || compute_part(instruction, r, x, y)) return;
  compute_rest(instruction, r, x, y);
}

std::unique_ptr<VectorCode> make_avx512(std::size_t bytes, void* buffer, bool wide) {
  return std::make_unique<Avx512>(bytes, buffer, wide);
}

}  // namespace loom::fusion::jit
