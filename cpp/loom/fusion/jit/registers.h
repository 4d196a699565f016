// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which value is in which register along a list of items. A value that is needed comes from where
// it was put: uniform values from their homes in the frame, others from a slot that they were
// spilled to. What makes room is the value whose next use is farthest away.
//
// The instructions of a list are given out once or several times (an unrolled loop); each time
// begins with nothing but the pinned values in registers.
// Thread: one object, one thread.

#include "loom/fusion/jit/frame.h"
#include "loom/fusion/jit/plan.h"
#include "loom/fusion/jit/vector_code.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion::jit {

class Registers {
 public:
  Registers(VectorCode& code, const Plan& plan, Frame& frame);

  /// A new list, of which the first `count - reserved` vector registers are for values.
  void prepare(const std::vector<Item>& items, int reserved);
  /// Loads uniform values that the list uses into registers that they keep, as far as there are
  /// more registers than the list needs.
  void pin_uniform_values();
  /// Before the first item, each time.
  void restart();

  /// The operands of item `i` in registers. They and those of result() stay until finish(i).
  std::array<int, 3> operands(std::size_t i);
  /// A register for the result of item `i`; it may be that of an operand that is used no more.
  int result(std::size_t i);
  void finish(std::size_t i);

  /// Instead of result(): saves what is needed after a call, and forgets what is in registers. The
  /// result is in register 0 then.
  void save_for_call(std::size_t i);
  void take_call_result(std::size_t i);

 private:
  static constexpr std::uint16_t kNever = 0xFFFF;
  struct State {
    std::int8_t reg = -1;
    int slot = -1;  ///< offset in the frame, or -1
    std::uint16_t next = kNever;
  };
  struct Pool {
    std::uint32_t usable = 0, free = 0, locked = 0, pinned = 0;
    std::array<ValueId, 32> owner = {};
  };

  [[nodiscard]] Type type_of(ValueId value) const { return plan_.analysis.values[value].type; }
  [[nodiscard]] bool is_uniform(ValueId value) const {
    return plan_.analysis.values[value].uniform;
  }
  [[nodiscard]] Pool& pool_of(ValueId value);
  [[nodiscard]] int most_live() const;
  int acquire(ValueId value);
  void make_room(Pool& pool);
  void save(ValueId value);
  void release(ValueId value);
  void forget(ValueId value);
  void release_operands(std::size_t i);

  VectorCode& code_;
  const Plan& plan_;
  Frame& frame_;
  const std::vector<Item>* items_ = nullptr;
  /// By item: the next item that uses the operands and the result.
  std::vector<std::array<std::uint16_t, 4>> next_;
  std::vector<State> states_;
  Pool vectors_, masks_;
};

}  // namespace loom::fusion::jit
