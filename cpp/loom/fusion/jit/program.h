// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The whole function of a kernel: rows, phases, loops over columns.
//
// General registers: rbx is the column, r12 the number of columns, r14 the end of the unrolled
// loop, r15 the constants, rbp the caller's frame; rax and rcx are scratch. The others hold
// addresses of rows, in loops that call functions only r13.
// Thread: one object, one thread.

#include "loom/fusion/jit/expand.h"
#include "loom/fusion/jit/frame.h"
#include "loom/fusion/jit/plan.h"
#include "loom/fusion/jit/registers.h"
#include "loom/fusion/jit/vector_code.h"
#include "loom/fusion/kernel.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace loom::fusion::jit {

class Program {
 public:
  /// `constants` are the values of the body's last parameters (expand.h).
  Program(const Body& body, std::span<const std::uint32_t> constants, const Plan& plan,
          VectorCode& code);
  void emit();
  /// Of the stack, after emit().
  [[nodiscard]] int frame_bytes() const noexcept { return frame_.bytes(); }

 private:
  static constexpr std::size_t kMostPointers =
      Body::kMaxInputs + Body::kMaxOutputs + kMaxExpandedValues;

  /// How the loop over the columns of a phase is made.
  struct Shape {
    int copies = 1;        ///< vectors a round of the unrolled loop
    int accumulators = 0;  ///< vector registers for accumulators; 0: in memory
  };

  void emit_prologue();
  void emit_epilogue();
  void copy_parameters();
  void copy_addresses();
  void advance_rows();
  void load_uniform_input(std::size_t input);
  void store_uniform_output(const Output& output, std::size_t index);

  void emit_uniform(const std::vector<Item>& items);
  void emit_loop(const Loop& loop);
  void emit_step(const Loop& loop, const Shape& shape, int copy, Access access);
  void emit_item(const Loop& loop, const Shape& shape, std::size_t i, int copy, Access access);
  void emit_compute(const Item& item, std::size_t i, Access access);
  void emit_accumulate(const Loop& loop, const Shape& shape, const Item& item, int value, int copy,
                       Access access);
  void start_accumulators(const Loop& loop, const Shape& shape);
  void save_accumulators(const Loop& loop, const Shape& shape);
  void fold_accumulators(const Loop& loop);

  [[nodiscard]] Shape shape_of(const Loop& loop) const;
  /// Whether stores of a loop go past the caches.
  [[nodiscard]] bool streams(const Loop& loop) const;
  /// The elements of a row before the first whole line of its outputs; rbx stands behind them.
  void emit_head(const Loop& loop);
  /// Their number, in rcx.
  void count_head(const Loop& loop);
  void choose_pointers(const Loop& loop);
  [[nodiscard]] std::size_t pointer_of(const Item& item) const;
  /// The address of the vector of `item`, `copy` vectors after the column. May use rax.
  VectorCode::Address address(const Item& item, std::size_t element_bytes, int copy);
  [[nodiscard]] VectorCode::Address frame(int offset) const { return code_.rsp + offset; }
  /// Where the accumulators of reduction `place` of a loop are, all lanes.
  [[nodiscard]] int accumulator_memory(const Loop& loop, std::size_t place) const;
  [[nodiscard]] int accumulator_register(const Loop& loop, const Shape& shape, std::size_t place,
                                         int copy) const;
  [[nodiscard]] Type type_of(ValueId value) const { return plan_.analysis.values[value].type; }
  [[nodiscard]] std::vector<bool> find_bfloat16() const;

  const Body& body_;
  const std::span<const std::uint32_t> constants_;
  const Plan& plan_;
  VectorCode& code_;
  Frame frame_;
  Registers registers_;
  std::vector<bool> is_bfloat16_;                     ///< by value: surely one of bfloat16
  std::array<int, kMostPointers> pointer_registers_;  ///< by pointer: the general register, or -1
  std::size_t frame_bytes_at_ = 0;
};

}  // namespace loom::fusion::jit
