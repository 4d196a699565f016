// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What machine code for a body does in which order: for each phase, the instructions on uniform
// values and then one loop over the columns. Says nothing of registers.
//
// A value of elements that several phases need is loaded again (inputs), computed again where that
// is cheap, and else kept in scratch memory by the first phase that computes it ("stashed").
// Thread: plain values.

#include "loom/fusion/body.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion::jit {

/// One step of a loop. `index` is the number of the input, output or instruction, or the place in
/// Plan::stashed.
struct Item {
  enum class Kind : std::uint8_t { kLoad, kUnstash, kCompute, kStash, kStore, kAccumulate };
  Kind kind = Kind::kCompute;
  std::uint8_t index = 0;
  bool has_result = false;
  std::uint8_t operand_count = 0;
  ValueId result = 0;
  std::array<ValueId, 3> operands = {};
};

struct Loop {
  std::vector<Item> items;               ///< all loads of inputs come before the first store
  std::vector<std::uint8_t> reductions;  ///< instructions; items accumulate into these
  bool calls = false;                    ///< some instruction is a call of a function
};

struct Phase {
  std::vector<Item> uniform;  ///< once a row, before the loop
  Loop loop;
};

struct Plan {
  Analysis analysis;
  std::vector<bool> needed;       ///< by value: some output depends on it
  std::vector<Item> before_rows;  ///< what depends on parameters alone
  std::vector<Phase> phases;
  std::vector<ValueId> stashed;  ///< values that have a place in scratch memory
  bool wide = false;             ///< some value has 64 bits
  bool calls = false;            ///< some instruction that is needed is a call
};

/// Whether `op` is too long to be emitted in line and is called instead (vector_math.h).
[[nodiscard]] bool is_function(Op op) noexcept;

/// Requires: a valid body.
[[nodiscard]] Plan make_plan(const Body& body);

/// Bytes of a value's element in scratch memory.
[[nodiscard]] inline std::size_t size_of(Type type) noexcept {
  return type == Type::kInt64 || type == Type::kDouble ? 8 : 4;
}

}  // namespace loom::fusion::jit
