// SPDX-License-Identifier: BSD-3-Clause
// Between registers and memory.
#include "loom/fusion/jit/avx512.h"

namespace loom::fusion::jit {

using Xbyak::Xmm;

void Avx512::set_tail() {
  mov(eax, -1);
  bzhi(eax, eax, ecx);
  if (lanes() == 8) movzx(eax, al);
  kmovw(k1, eax);
  kmovw(ptr[work_], k1);
}

void Avx512::load_bool(int result, const Address& address, bool tail) {
  const Xmm t(31);
  if (tail) {
    vmovdqu8(t | k1 | T_z, ptr[address]);
  } else if (lanes() == 16) {
    vmovdqu8(t, ptr[address]);
  } else {
    vmovq(t, ptr[address]);
  }
  vptestmb(mask(result), t, t);
}

void Avx512::load(DType dtype, int result, const Address& address, Access access) {
  const bool tail = access == Access::kTail;
  if (dtype == DType::kBool) return load_bool(result, address, tail);
  const Xmm whole = reg(result, register_type(dtype));
  const Xmm x = tail ? whole | k1 | T_z : whole;
  switch (dtype) {
    case DType::kUInt8:
      return vpmovzxbd(x, ptr[address]);
    case DType::kInt8:
      return vpmovsxbd(x, ptr[address]);
    case DType::kInt16:
      return vpmovsxwd(x, ptr[address]);
    case DType::kHalf:
      return vcvtph2ps(x, ptr[address]);
    case DType::kBFloat16:
      vpmovzxwd(x, ptr[address]);
      return vpslld(whole, whole, 16);
    case DType::kInt64:
    case DType::kDouble:
      return vmovupd(x, ptr[address]);
    default:
      return vmovups(x, ptr[address]);
  }
}

void Avx512::store_vector(const Xmm& value, int bytes, const Address& address, bool streaming) {
  const Xmm x = sized(value.getIdx(), bytes);
  if (bytes == 8) {
    vmovq(ptr[address], x);
  } else if (streaming) {
    vmovntps(ptr[address], x);
  } else {
    vmovups(ptr[address], x);
  }
}

void Avx512::store_bool(int value, const Address& address, Access access) {
  const Xmm t(31);
  vmovdqu8(t | mask(value) | T_z, ptr[r15 + static_cast<int>(offsetof(Constants, one_bytes))]);
  if (access == Access::kTail) {
    vmovdqu8(ptr[address] | k1, t);
  } else {
    store_vector(t, lanes(), address, access == Access::kStreaming);
  }
}

/// A value of 32 bits to its lower 8 or 16 bits, or as a half.
void Avx512::store_narrow(DType dtype, const Xmm& value, const Address& address, Access access) {
  const int size = static_cast<int>(fusion::size_of(dtype));
  const bool tail = access == Access::kTail;
  const Xmm t = sized(31, lanes() * size);
  if (dtype == DType::kHalf) {
    constexpr int kToNearest = 0;
    tail ? vcvtps2ph(ptr[address] | k1, value, kToNearest) : vcvtps2ph(t, value, kToNearest);
  } else if (size == 2) {
    tail ? vpmovdw(ptr[address] | k1, value) : vpmovdw(t, value);
  } else {
    tail ? vpmovdb(ptr[address] | k1, value) : vpmovdb(t, value);
  }
  if (!tail) store_vector(t, lanes() * size, address, access == Access::kStreaming);
}

/// By the processor's conversion, which takes numbers that are not normal for zeros and has NaNs of
/// its own: where there are such, by round_to_bfloat16().
void Avx512::store_converted(const Xmm& value, const Address& address, Access access) {
  constexpr std::uint8_t kNanOrDenormal = 0x01 | 0x20 | 0x80;
  const Xmm t = sized(31, lanes() * 2), whole = sized(31, bytes(Type::kFloat));
  Xbyak::Label done;
  vfpclassps(k2, value, kNanOrDenormal);
  vcvtneps2bf16(t, value);
  kortestw(k2, k2);
  jz(done);
  round_to_bfloat16(whole, value);
  vpsrld(whole, whole, 16);
  vpmovdw(t, whole);
  L(done);
  if (access == Access::kTail) {
    vmovdqu16(ptr[address] | k1, t);
  } else {
    store_vector(t, lanes() * 2, address, access == Access::kStreaming);
  }
}

void Avx512::store(DType dtype, int value, const Address& address, Access access, bool exact) {
  if (dtype == DType::kBool) return store_bool(value, address, access);
  const Xmm x = reg(value, register_type(dtype));
  if (dtype == DType::kBFloat16) {
    const Xmm t = sized(31, bytes(Type::kFloat));
    if (!exact && converts_bfloat16_) return store_converted(x, address, access);
    if (!exact) round_to_bfloat16(t, x);
    vpsrld(t, exact ? x : t, 16);
    return store_narrow(dtype, t, address, access);
  }
  if (fusion::size_of(dtype) < 4) return store_narrow(dtype, x, address, access);
  if (access != Access::kTail) {
    return store_vector(x, bytes(register_type(dtype)), address, access == Access::kStreaming);
  }
  if (fusion::size_of(dtype) == 8) {
    vmovupd(ptr[address] | k1, x);
  } else {
    vmovups(ptr[address] | k1, x);
  }
}

void Avx512::fill(Type type, int result, const Address& address) {
  type == Type::kMask ? kmovw(mask(result), ptr[address])
                      : vmovups(reg(result, type), ptr[address]);
}

void Avx512::spill(Type type, int value, const Address& address) {
  type == Type::kMask ? kmovw(ptr[address], mask(value)) : vmovups(ptr[address], reg(value, type));
}

void Avx512::broadcast(Type type, int result, const Address& address) {
  if (type == Type::kMask) {
    kmovw(mask(result), ptr[address]);
  } else if (size_of(type) == 8) {
    vpbroadcastq(reg(result, type), ptr[address]);
  } else {
    vbroadcastss(reg(result, type), ptr[address]);
  }
}

void Avx512::save_first(Type type, int value, const Address& address) {
  if (type == Type::kMask) {
    kmovw(ptr[address], mask(value));
  } else if (size_of(type) == 8) {
    vmovsd(ptr[address], Xmm(value));
  } else {
    vmovss(ptr[address], Xmm(value));
  }
}

}  // namespace loom::fusion::jit
