// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A body is what a fused program does to the elements of a two-dimensional range of rows and
// columns, without saying where they are: a list of instructions in SSA form. It is what kernels
// are made from, and what they are cached by.
//
// Values are numbered: the inputs first, then the parameters, then the results of the instructions
// in their order; an operand's number is below the instruction's own. A value is *uniform* if it is
// the same for all columns of a row: uniform inputs, parameters, reductions, and what is computed
// from such values alone. All others are *elements*.
//
// A reduction needs all columns before anything can use its result, so a body runs in *phases*:
// phase p of each row comes after the reductions of phase p - 1.
// Thread: plain values.

#include "loom/fusion/op.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace loom::fusion {

using ValueId = std::uint8_t;

struct Input {
  DType dtype = DType::kFloat;
  bool uniform = false;  ///< one element a row
  friend bool operator==(const Input&, const Input&) = default;
};

struct Instruction {
  Op op = Op::kAdd;
  Type type = Type::kFloat;  ///< of the operands
  ValueId a = 0, b = 0, c = 0;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Output {
  ValueId value = 0;
  DType dtype = DType::kFloat;
  bool uniform = false;  ///< one element a row is stored; the value must be uniform then
  friend bool operator==(const Output&, const Output&) = default;
};

struct Body {
  static constexpr std::size_t kMaxInputs = 24, kMaxOutputs = 24, kMaxParams = 40;
  static constexpr std::size_t kMaxInstructions = 96;

  std::vector<Input> inputs = {};
  std::vector<Type> params = {};  ///< types of the numbers that each run is given
  std::vector<Instruction> instructions = {};
  std::vector<Output> outputs = {};
  /// Outputs of elements are written past the caches.
  bool streaming = false;
  /// Addresses and row strides of streamed outputs are multiples of 64 bytes. If not, then they are
  /// alike but for such, and outputs have elements of one size: one step makes all of them so.
  bool aligned = true;

  [[nodiscard]] std::size_t value_count() const noexcept {
    return inputs.size() + params.size() + instructions.size();
  }
  [[nodiscard]] std::size_t first_param() const noexcept { return inputs.size(); }
  [[nodiscard]] std::size_t first_result() const noexcept { return inputs.size() + params.size(); }
  friend bool operator==(const Body&, const Body&) = default;
};

/// What is known of each value of a body.
struct ValueInfo {
  Type type = Type::kFloat;
  bool uniform = false;
  std::uint8_t phase = 0;     ///< the phase in which the value is first known
  std::uint8_t last_use = 0;  ///< the last phase that uses it; outputs are used by the last phase
  bool used = false;
};

struct Analysis {
  std::vector<ValueInfo> values;
  int phases = 1;
};

/// Requires: a valid body.
[[nodiscard]] Analysis analyse(const Body& body);

/// Ends the process with a message if the body breaks a rule that is stated here (debugging).
void check_valid(const Body& body);

[[nodiscard]] std::size_t hash_of(const Body& body) noexcept;

/// The instructions as text, one a line: "v3 = add.float v0 v1".
[[nodiscard]] std::string to_string(const Body& body);

}  // namespace loom::fusion
