// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The assembler for processors with AVX2, FMA and F16C.
// Thread: one object, one thread.

#include "loom/fusion/jit/vector_code.h"

#include <cstddef>
#include <cstdint>

namespace loom::fusion::jit {

/// ymm0 to ymm11 hold values, the others are scratch. 8 lanes, or 4 if there are 64-bit values:
/// then values of 32 bits are in xmm registers. Masks are vectors of 32-bit lanes, all bits alike.
class Avx2 final : public VectorCode {
 public:
  Avx2(std::size_t bytes, void* buffer, bool wide) : VectorCode(bytes, buffer, wide ? 4 : 8) {
    scratch_ = 12;
  }

  [[nodiscard]] int vector_registers() const noexcept override { return 12; }
  [[nodiscard]] int mask_registers() const noexcept override { return 0; }
  void set_tail() override;
  void restore_tail() override {}
  void load(DType dtype, int result, const Address& address, Access access) override;
  void store(DType dtype, int value, const Address& address, Access access, bool exact) override;
  void fill(Type type, int result, const Address& address) override {
    vmovups(reg(result, type), ptr[address]);
  }
  void spill(Type type, int value, const Address& address) override {
    vmovups(ptr[address], reg(value, type));
  }
  void broadcast(Type type, int result, const Address& address) override;
  void save_first(Type type, int value, const Address& address) override;
  void move(Type type, int result, int value) override {
    if (result != value) vmovaps(reg(result, type), reg(value, type));
  }
  void compute(const Instruction& instruction, int result, int a, int b, int c) override;
  void accumulate(Op op, Type type, int accumulator, int value, Access access) override;

 protected:
  void combine(Op op, Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
               const Xbyak::Xmm& b) override;

 private:
  // The work memory.
  [[nodiscard]] Address tail_mask(std::size_t element) const {
    return work_ + (element == 8 ? 32 : 0);
  }
  [[nodiscard]] Address tail_count() const { return work_ + 64; }
  [[nodiscard]] Address bounce() const { return work_ + 96; }

  /// A scratch register, 13 to 15, as wide as `like`.
  [[nodiscard]] static Xbyak::Xmm temporary(int index, const Xbyak::Xmm& like) {
    return Xbyak::Xmm(like.getKind(), index);
  }
  void broadcast_word(const Xbyak::Xmm& result, std::size_t offset) {
    vbroadcastss(result, ptr[r15 + static_cast<int>(offset)]);
  }
  void zero(const Xbyak::Xmm& x) { vpxor(x, x, x); }

  void load_whole(DType dtype, const Xbyak::Xmm& x, const Address& address);
  void store_whole(DType dtype, const Xbyak::Xmm& x, const Address& address, bool streaming,
                   bool exact);
  void store_narrow(const Xbyak::Xmm& value, int size, const Address& address, bool streaming);
  void store_vector(const Xbyak::Xmm& value, int bytes, const Address& address, bool streaming);
  /// The elements of the tail, from rax to the bounce memory or back.
  void copy_tail(std::size_t element, bool to_bounce);

  void narrow_mask(const Xbyak::Xmm& result, const Xbyak::Xmm& mask);
  void compute_mask(Op op, int result, int a, int b, int c);
  bool compare(const Instruction& instruction, int result, int a, int b);
  void compare_integers(Op op, Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                        const Xbyak::Xmm& b);
  void convert(const Instruction& instruction, int result, int a);
  void convert_mask(Op op, int result, int a);
  void convert_int64(Type from, Type to, int result, int a);
  void select(Type type, int result, int a, int b, int c);
  bool compute_bits(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                    const Xbyak::Xmm& b);
  bool compute_int64(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                     const Xbyak::Xmm& b);
  void compute_rest(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                    const Xbyak::Xmm& b);
  void sign(Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a);
  void unordered(Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a);
  void blend(Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& other, const Xbyak::Xmm& chosen,
             const Xbyak::Xmm& mask);
  void extreme(bool maximum, Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
               const Xbyak::Xmm& b);
  void round_to_bfloat16(const Xbyak::Xmm& result, const Xbyak::Xmm& a);
};

}  // namespace loom::fusion::jit
