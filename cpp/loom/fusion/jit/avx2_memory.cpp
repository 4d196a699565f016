// SPDX-License-Identifier: BSD-3-Clause
// Between registers and memory.
#include "loom/fusion/jit/avx2.h"

namespace loom::fusion::jit {

using Xbyak::Xmm;
using Xbyak::Ymm;

void Avx2::set_tail() {
  mov(eax, lanes());
  cmp(ecx, eax);
  cmovg(ecx, eax);
  mov(ptr[tail_count()], ecx);
  vmovd(Xmm(15), ecx);
  vpbroadcastd(Ymm(15), Xmm(15));
  vpcmpgtd(Ymm(15), Ymm(15), ptr[r15 + static_cast<int>(offsetof(Constants, lane_numbers))]);
  vmovups(ptr[tail_mask(4)], Ymm(15));
  if (lanes() == 8) return;
  vpmovsxdq(Ymm(15), Xmm(15));
  vmovups(ptr[tail_mask(8)], Ymm(15));
}

void Avx2::copy_tail(std::size_t element, bool to_bounce) {
  const int size = static_cast<int>(element);
  const Address outside = rax + rcx * size - size, inside = bounce() + rcx * size - size;
  const Address& from = to_bounce ? outside : inside;
  const Address& to = to_bounce ? inside : outside;
  Xbyak::Label next;
  mov(ecx, ptr[tail_count()]);
  L(next);
  if (size == 1) {
    movzx(r14d, byte[from]);
    mov(byte[to], r14b);
  } else {
    movzx(r14d, word[from]);
    mov(word[to], r14w);
  }
  dec(ecx);
  jnz(next);
}

void Avx2::load_whole(DType dtype, const Xmm& x, const Address& address) {
  switch (dtype) {
    case DType::kBool: {
      const Xmm none = temporary(15, x);
      zero(none);
      vpmovzxbd(x, ptr[address]);
      return vpcmpgtd(x, x, none);
    }
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
      return vpslld(x, x, 16);
    default:
      return vmovups(x, ptr[address]);
  }
}

void Avx2::load(DType dtype, int result, const Address& address, Access access) {
  const Xmm x = reg(result, register_type(dtype));
  if (access != Access::kTail) return load_whole(dtype, x, address);
  const std::size_t size = fusion::size_of(dtype);
  if (size < 4) {
    lea(rax, ptr[address]);
    copy_tail(size, true);
    return load_whole(dtype, x, bounce());
  }
  const Xmm mask = temporary(15, x);
  vmovups(mask, ptr[tail_mask(size)]);
  size == 8 ? vmaskmovpd(x, mask, ptr[address]) : vmaskmovps(x, mask, ptr[address]);
}

void Avx2::store_vector(const Xmm& value, int bytes, const Address& address, bool streaming) {
  const Xmm x = sized(value.getIdx(), bytes);
  if (bytes == 4) {
    vmovd(dword[address], x);
  } else if (bytes == 8) {
    vmovq(ptr[address], x);
  } else if (streaming) {
    vmovntps(ptr[address], x);
  } else {
    vmovups(ptr[address], x);
  }
}

/// The lower `size` bytes (1 or 2) of lanes of which the others are 0. Clobbers ymm13.
void Avx2::store_narrow(const Xmm& value, int size, const Address& address, bool streaming) {
  const Xmm low(value.getIdx()), high(13);
  if (lanes() == 8) {
    vextractf128(high, Ymm(value.getIdx()), 1);
    vpackusdw(low, low, high);
  } else {
    vpackusdw(low, low, low);
  }
  if (size == 1) vpackuswb(low, low, low);
  store_vector(low, lanes() * size, address, streaming);
}

void Avx2::store_whole(DType dtype, const Xmm& x, const Address& address, bool streaming,
                       bool exact) {
  const Xmm t = temporary(15, x);
  const int size = static_cast<int>(fusion::size_of(dtype));
  switch (dtype) {
    case DType::kBool:
      vpsrld(t, x, 31);
      return store_narrow(t, size, address, streaming);
    case DType::kHalf: {
      constexpr int kToNearest = 0;
      vcvtps2ph(Xmm(15), x, kToNearest);
      return store_vector(t, lanes() * size, address, streaming);
    }
    case DType::kBFloat16:
      if (!exact) round_to_bfloat16(t, x);
      vpsrld(t, exact ? x : t, 16);
      return store_narrow(t, size, address, streaming);
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
      broadcast_word(t, size == 1 ? offsetof(Constants, low_byte) : offsetof(Constants, low_half));
      vpand(t, t, x);
      return store_narrow(t, size, address, streaming);
    default:
      return store_vector(x, lanes() * size, address, streaming);
  }
}

void Avx2::store(DType dtype, int value, const Address& address, Access access, bool exact) {
  const Xmm x = reg(value, register_type(dtype));
  const std::size_t size = fusion::size_of(dtype);
  if (access != Access::kTail) {
    return store_whole(dtype, x, address, access == Access::kStreaming, exact);
  }
  if (size < 4) {
    store_whole(dtype, x, bounce(), false, exact);
    lea(rax, ptr[address]);
    return copy_tail(size, false);
  }
  const Xmm mask = temporary(15, x);
  vmovups(mask, ptr[tail_mask(size)]);
  size == 8 ? vmaskmovpd(ptr[address], mask, x) : vmaskmovps(ptr[address], mask, x);
}

void Avx2::broadcast(Type type, int result, const Address& address) {
  const Xmm x = reg(result, type);
  size_of(type) == 8 ? vpbroadcastq(x, ptr[address]) : vbroadcastss(x, ptr[address]);
}

void Avx2::save_first(Type type, int value, const Address& address) {
  size_of(type) == 8 ? vmovsd(ptr[address], Xmm(value)) : vmovss(ptr[address], Xmm(value));
}

}  // namespace loom::fusion::jit
