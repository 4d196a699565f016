// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The assembler for processors with AVX-512 (F, BW, DQ, VL).
// Thread: one object, one thread.

#include "loom/base/simd_level.h"
#include "loom/fusion/jit/vector_code.h"

#include <cstddef>
#include <cstdint>

namespace loom::fusion::jit {

/// zmm0 to zmm28 and k4 to k7 hold values, k1 the tail; the others are scratch. 16 lanes, or 8 if
/// there are 64-bit values: then values of 32 bits are in ymm registers.
class Avx512 final : public VectorCode {
 public:
  Avx512(std::size_t bytes, void* buffer, bool wide) : VectorCode(bytes, buffer, wide ? 8 : 16) {
    scratch_ = 31;
  }

  [[nodiscard]] int vector_registers() const noexcept override { return 29; }
  [[nodiscard]] int mask_registers() const noexcept override { return 4; }
  void set_tail() override;
  void restore_tail() override { kmovw(k1, ptr[work_]); }
  void load(DType dtype, int result, const Address& address, Access access) override;
  void store(DType dtype, int value, const Address& address, Access access, bool exact) override;
  void fill(Type type, int result, const Address& address) override;
  void spill(Type type, int value, const Address& address) override;
  void broadcast(Type type, int result, const Address& address) override;
  void save_first(Type type, int value, const Address& address) override;
  void move(Type type, int result, int value) override;
  void compute(const Instruction& instruction, int result, int a, int b, int c) override;
  void accumulate(Op op, Type type, int accumulator, int value, Access access) override;

 protected:
  void combine(Op op, Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
               const Xbyak::Xmm& b) override;

 private:
  [[nodiscard]] static Xbyak::Opmask mask(int index) noexcept { return Xbyak::Opmask(4 + index); }
  /// A number from the table in all lanes, as an operand in memory.
  [[nodiscard]] Xbyak::Address all(const Address& address) const { return ptr_b[address]; }

  void load_bool(int result, const Address& address, bool tail);
  void store_bool(int value, const Address& address, Access access);
  void store_narrow(DType dtype, const Xbyak::Xmm& value, const Address& address, Access access);
  void store_vector(const Xbyak::Xmm& value, int bytes, const Address& address, bool streaming);
  void store_converted(const Xbyak::Xmm& value, const Address& address, Access access);
  void round_to_bfloat16(const Xbyak::Xmm& result, const Xbyak::Xmm& a);

  void compute_mask(Op op, int result, int a, int b, int c);
  bool compare(const Instruction& instruction, int result, int a, int b);
  void convert(const Instruction& instruction, int result, int a);
  void convert_mask(Op op, int result, int a);
  bool compute_bits(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                    const Xbyak::Xmm& b);
  bool compute_int64(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                     const Xbyak::Xmm& b, const Xbyak::Xmm& c);
  void compute_rest(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                    const Xbyak::Xmm& b);
  bool compute_part(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                    const Xbyak::Xmm& b);
  void sign(Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a);
  void compare_vectors(Type type, const Xbyak::Opmask& result, const Xbyak::Xmm& a,
                       const Xbyak::Xmm& b, Op op);
  void unordered(Type type, const Xbyak::Opmask& result, const Xbyak::Xmm& a);
  void extreme(bool maximum, Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
               const Xbyak::Xmm& b);

  const bool converts_bfloat16_ = simd_level() >= SimdLevel::kAvx512Bf16;
  const Xbyak::Xmm t30_{Xbyak::Operand::ZMM, 30};
};

}  // namespace loom::fusion::jit
