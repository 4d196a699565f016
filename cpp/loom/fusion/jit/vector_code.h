// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An assembler of what bodies are made of: one load, operation or store of a vector of `lanes()`
// elements. Values are in registers, numbered from 0; masks have registers of their own where
// mask_registers() says so, and are numbers of vector registers elsewhere. A value of b bytes an
// element is in a register of lanes() * b bytes. Further registers are scratch within one call.
// General registers: rax, rcx and, with a tail, r14 are scratch; r15 has the address of kConstants.
// Thread: one object, one thread.

#include "loom/fusion/body.h"
#include "loom/fusion/jit/constants.h"
#include "loom/fusion/jit/plan.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <xbyak/xbyak.h>

namespace loom::fusion::jit {

/// Which lanes are touched in memory: all, those of the tail, or all and past the caches.
enum class Access : std::uint8_t { kWhole, kTail, kStreaming };

class VectorCode : public Xbyak::CodeGenerator {
 public:
  using Address = Xbyak::RegExp;
  using Type = fusion::Type;  // CodeGenerator has another one

  VectorCode(std::size_t bytes, void* buffer, int lanes)
      : CodeGenerator(bytes, buffer), lanes_(lanes) {}

  [[nodiscard]] int lanes() const noexcept { return lanes_; }
  /// A vector register that holds no value, and is lost by compute(), load() and store().
  [[nodiscard]] int scratch() const noexcept { return scratch_; }
  [[nodiscard]] virtual int vector_registers() const noexcept = 0;
  [[nodiscard]] virtual int mask_registers() const noexcept = 0;

  /// kWorkBytes of memory, aligned to 64, that the code may use as it likes. Requires: before all
  /// that follows.
  void set_work_memory(const Address& address) { work_ = address; }
  static constexpr int kWorkBytes = 128;

  /// The tail is the first ecx lanes, all if there are more. Clobbers ecx.
  virtual void set_tail() = 0;
  /// After a call of a function.
  virtual void restore_tail() = 0;

  /// Never touches memory outside the lanes. Lanes outside the tail have any value.
  virtual void load(DType dtype, int result, const Address& address, Access access) = 0;
  /// `exact`: the value is known to be one of `dtype`, so that it needs no rounding.
  virtual void store(DType dtype, int value, const Address& address, Access access, bool exact) = 0;
  /// All lanes from and to 64-byte memory of our own.
  virtual void fill(Type type, int result, const Address& address) = 0;
  virtual void spill(Type type, int value, const Address& address) = 0;
  /// One number in 8 bytes (all bits of a lane, for masks) to all lanes, and lane 0 back.
  virtual void broadcast(Type type, int result, const Address& address) = 0;
  virtual void save_first(Type type, int value, const Address& address) = 0;
  virtual void move(Type type, int result, int value) = 0;

  /// `result` may be the register of an operand. Requires: neither a function nor a reduction.
  virtual void compute(const Instruction& instruction, int result, int a, int b, int c) = 0;

  /// The step of a reduction: accumulator (op)= value, in the lanes of the tail or in all.
  virtual void accumulate(Op op, Type type, int accumulator, int value, Access access) = 0;
  /// The value that accumulators start at.
  void start_accumulator(Op op, Type type, int accumulator);
  /// Folds kReductionLanes accumulators at `from`, and saves the one that is left at `to`.
  /// Clobbers all vector registers.
  void fold(Op op, Type type, const Address& from, const Address& to);

 protected:
  [[nodiscard]] int bytes(Type type) const noexcept {
    return lanes_ * static_cast<int>(size_of(type));
  }
  [[nodiscard]] static Xbyak::Xmm sized(int index, int bytes) noexcept {
    return Xbyak::Xmm(bytes >= 64   ? Xbyak::Operand::ZMM
                      : bytes >= 32 ? Xbyak::Operand::YMM
                                    : Xbyak::Operand::XMM,
                      index);
  }
  /// The register of a value of `type`.
  [[nodiscard]] Xbyak::Xmm reg(int index, Type type) const noexcept {
    return sized(index, bytes(type));
  }
  [[nodiscard]] Address number(Number which, Type type) const noexcept {
    return r15 + offset_of(which, type);
  }

  /// result = a (op) b for registers of any width: kSum, kMax or kMin.
  virtual void combine(Op op, Type type, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                       const Xbyak::Xmm& b) = 0;
  /// What both instruction sets have alike. False if `instruction` is none of it.
  bool compute_alike(const Instruction& instruction, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                     const Xbyak::Xmm& b, const Xbyak::Xmm& c);

  /// result = a * b + c.
  void multiply_add(bool is_float, const Xbyak::Xmm& result, const Xbyak::Xmm& a,
                    const Xbyak::Xmm& b, const Xbyak::Xmm& c);

  /// The immediate operand of a rounding instruction.
  [[nodiscard]] static std::uint8_t rounding_of(Op op);

  /// A register that compute_alike() and fold() may clobber; not one of the values'.
  int scratch_ = 0;
  Address work_;

 private:
  const int lanes_;
};

/// Assemblers into `buffer`. `wide`: there are 64-bit values.
[[nodiscard]] std::unique_ptr<VectorCode> make_avx512(std::size_t bytes, void* buffer, bool wide);
[[nodiscard]] std::unique_ptr<VectorCode> make_avx2(std::size_t bytes, void* buffer, bool wide);

}  // namespace loom::fusion::jit
