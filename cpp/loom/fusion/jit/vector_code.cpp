// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/vector_code.h"

namespace loom::fusion::jit {
std::uint8_t VectorCode::rounding_of(Op op) {
  constexpr std::uint8_t kNoFlags = 8;
  switch (op) {
    case Op::kRound:
      return kNoFlags;
    case Op::kFloor:
      return kNoFlags | 1;
    case Op::kCeil:
      return kNoFlags | 2;
    default:
      return kNoFlags | 3;
  }
}

void VectorCode::start_accumulator(Op op, Type type, int accumulator) {
  const Number start = op == Op::kSum   ? Number::kZero
                       : op == Op::kMax ? Number::kLowest
                                        : Number::kHighest;
  broadcast(type, accumulator, number(start, type));
}

void VectorCode::fold(Op op, Type type, const Address& from, const Address& to) {
  const int width = bytes(type);
  int vectors = static_cast<int>(kReductionLanes) / lanes_;
  const Xbyak::Xmm other = reg(scratch_, type);
  for (int i = 0; i < vectors / 2; ++i) {
    fill(type, i, from + i * width);
    fill(type, scratch_, from + (i + vectors / 2) * width);
    combine(op, type, reg(i, type), reg(i, type), other);
  }
  for (vectors /= 2; vectors > 1; vectors /= 2) {
    for (int i = 0; i < vectors / 2; ++i) {
      combine(op, type, reg(i, type), reg(i, type), reg(i + vectors / 2, type));
    }
  }
  const Xbyak::Xmm half(1);
  if (width == 64) {
    vextractf64x4(Xbyak::Ymm(1), Xbyak::Zmm(0), 1);
    combine(op, type, Xbyak::Ymm(0), Xbyak::Ymm(0), Xbyak::Ymm(1));
  }
  if (width >= 32) {
    vextractf128(half, Xbyak::Ymm(0), 1);
    combine(op, type, Xbyak::Xmm(0), Xbyak::Xmm(0), half);
  }
  vpshufd(half, Xbyak::Xmm(0), 0x4E);
  combine(op, type, Xbyak::Xmm(0), Xbyak::Xmm(0), half);
  if (size_of(type) == 4) {
    vpshufd(half, Xbyak::Xmm(0), 0xB1);
    combine(op, type, Xbyak::Xmm(0), Xbyak::Xmm(0), half);
  }
  save_first(type, 0, to);
}

void VectorCode::multiply_add(bool is_float, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                              const Xbyak::Xmm& b, const Xbyak::Xmm& c) {
  const int to = result.getIdx();
  if (to == c.getIdx()) {
    is_float ? vfmadd231ps(result, a, b) : vfmadd231pd(result, a, b);
  } else if (to == b.getIdx()) {
    is_float ? vfmadd213ps(result, a, c) : vfmadd213pd(result, a, c);
  } else {
    if (to != a.getIdx()) vmovaps(result, a);
    is_float ? vfmadd213ps(result, b, c) : vfmadd213pd(result, b, c);
  }
}

bool VectorCode::compute_alike(const Instruction& instruction, const Xbyak::Xmm& result,
                               const Xbyak::Xmm& a, const Xbyak::Xmm& b, const Xbyak::Xmm& c) {
  const Type type = instruction.type;
  if (type == Type::kMask || type == Type::kInt64) return false;
  const bool is_float = type == Type::kFloat, is_int = type == Type::kInt32;
  const Xbyak::Xmm t = reg(scratch_, type);
  switch (instruction.op) {
    case Op::kAdd:
      is_int ? vpaddd(result, a, b) : is_float ? vaddps(result, a, b) : vaddpd(result, a, b);
      return true;
    case Op::kSub:
      is_int ? vpsubd(result, a, b) : is_float ? vsubps(result, a, b) : vsubpd(result, a, b);
      return true;
    case Op::kMul:
      is_int ? vpmulld(result, a, b) : is_float ? vmulps(result, a, b) : vmulpd(result, a, b);
      return true;
    case Op::kDiv:
      is_float ? vdivps(result, a, b) : vdivpd(result, a, b);
      return true;
    case Op::kSqrt:
      is_float ? vsqrtps(result, a) : vsqrtpd(result, a);
      return true;
    case Op::kRsqrt:
      is_float ? vsqrtps(result, a) : vsqrtpd(result, a);
      broadcast(type, scratch_, number(Number::kOne, type));
      is_float ? vdivps(result, t, result) : vdivpd(result, t, result);
      return true;
    case Op::kReciprocal:
      broadcast(type, scratch_, number(Number::kOne, type));
      is_float ? vdivps(result, t, a) : vdivpd(result, t, a);
      return true;
    case Op::kMulAdd:
      if (is_int) {
        vpmulld(t, a, b);
        vpaddd(result, t, c);
        return true;
      }
      multiply_add(is_float, result, a, b, c);
      return true;
    case Op::kWrapInt8:
    case Op::kWrapInt16: {
      const auto bits = static_cast<std::uint8_t>(instruction.op == Op::kWrapInt8 ? 24 : 16);
      vpslld(result, a, bits);
      vpsrad(result, result, bits);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace loom::fusion::jit
