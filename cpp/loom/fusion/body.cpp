// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/body.h"

#include "loom/base/check.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace loom::fusion {
namespace {

std::array<ValueId, 3> operands_of(const Instruction& instruction) {
  return {instruction.a, instruction.b, instruction.c};
}

std::string_view name_of(Type type) {
  constexpr std::array<std::string_view, 5> kNames = {"mask", "int32", "int64", "float", "double"};
  return kNames[static_cast<std::size_t>(type)];
}

Type expected_type(const Instruction& instruction, int operand) {
  return instruction.op == Op::kSelect && operand == 0 ? Type::kMask : instruction.type;
}

/// Throws unless every number is that of a value which is there: analyse() relies on it.
void check_numbers(const Body& body) {
  std::size_t self = body.first_result();
  for (const Instruction& instruction : body.instructions) {
    const auto operands = operands_of(instruction);
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      LOOM_CHECK(operands[i] < self, "fusion: a value is used before it is there");
    }
    ++self;
  }
  for (const Output& output : body.outputs) {
    LOOM_CHECK(output.value < body.value_count(), "fusion: an output of no value");
  }
}

}  // namespace

Analysis analyse(const Body& body) {
  Analysis analysis;
  analysis.values.reserve(body.value_count());
  for (const Input& input : body.inputs) {
    analysis.values.push_back({.type = register_type(input.dtype), .uniform = input.uniform});
  }
  for (const Type type : body.params) analysis.values.push_back({.type = type, .uniform = true});
  for (const Instruction& instruction : body.instructions) {
    ValueInfo result{.type = result_type(instruction.op, instruction.type), .uniform = true};
    const auto operands = operands_of(instruction);
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      const ValueInfo& operand = analysis.values[operands[i]];
      result.uniform = result.uniform && operand.uniform;
      result.phase = std::max(result.phase, operand.phase);
    }
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      ValueInfo& operand = analysis.values[operands[i]];
      operand.used = true;
      operand.last_use = std::max(operand.last_use, result.phase);
    }
    if (is_reduction(instruction.op)) {
      result.uniform = true;
      ++result.phase;
    }
    result.last_use = result.phase;
    analysis.phases = std::max(analysis.phases, result.phase + 1);
    analysis.values.push_back(result);
  }
  for (const Output& output : body.outputs) {
    ValueInfo& value = analysis.values[output.value];
    value.used = true;
    value.last_use = static_cast<std::uint8_t>(analysis.phases - 1);
  }
  return analysis;
}

void check_valid(const Body& body) {
  LOOM_CHECK(body.inputs.size() <= Body::kMaxInputs && body.outputs.size() <= Body::kMaxOutputs &&
                 body.params.size() <= Body::kMaxParams &&
                 body.instructions.size() <= Body::kMaxInstructions,
             "fusion: a body is larger than its limits");
  check_numbers(body);
  const Analysis analysis = analyse(body);
  for (const Instruction& instruction : body.instructions) {
    LOOM_CHECK(is_defined(instruction.op, instruction.type), "fusion: there is no ",
               fusion::name_of(instruction.op), " of ", name_of(instruction.type));
    const auto operands = operands_of(instruction);
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      LOOM_CHECK(analysis.values[operands[i]].type == expected_type(instruction, i),
                 "fusion: an operand of ", fusion::name_of(instruction.op), " has the wrong type");
    }
    LOOM_CHECK(!is_reduction(instruction.op) || !analysis.values[instruction.a].uniform,
               "fusion: a reduction of a value that is the same for the whole row");
  }
  for (const Output& output : body.outputs) {
    const ValueInfo& value = analysis.values[output.value];
    LOOM_CHECK(value.type == register_type(output.dtype), "fusion: an output of the wrong type");
    LOOM_CHECK(!output.uniform || value.uniform, "fusion: one element of a value that has many");
  }
}

std::size_t hash_of(const Body& body) noexcept {
  std::uint64_t hash = body.streaming ? 0x9E3779B97F4A7C15ULL : 0xC2B2AE3D27D4EB4FULL;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDULL;
    hash ^= hash >> 32;
  };
  mix(std::uint64_t{body.aligned});
  for (const Input& input : body.inputs) {
    mix(static_cast<std::uint64_t>(input.dtype) << 1 | std::uint64_t{input.uniform});
  }
  mix(~std::uint64_t{0});
  for (const Type type : body.params) mix(static_cast<std::uint64_t>(type));
  mix(~std::uint64_t{1});
  for (const Instruction& i : body.instructions) {
    const auto [a, b, c] = operands_of(i);
    mix(static_cast<std::uint64_t>(i.op) | static_cast<std::uint64_t>(i.type) << 8 |
        std::uint64_t{a} << 16 | std::uint64_t{b} << 24 | std::uint64_t{c} << 32);
  }
  mix(~std::uint64_t{2});
  for (const Output& output : body.outputs) {
    mix(std::uint64_t{output.value} | static_cast<std::uint64_t>(output.dtype) << 8 |
        std::uint64_t{output.uniform} << 16);
  }
  return hash;
}

std::string to_string(const Body& body) {
  std::string text;
  std::size_t self = body.first_result();
  for (const Instruction& instruction : body.instructions) {
    text += 'v';
    text += std::to_string(self++);
    text += " = ";
    text += fusion::name_of(instruction.op);
    text += ".";
    text += name_of(instruction.type);
    const auto operands = operands_of(instruction);
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      text += " v";
      text += std::to_string(operands[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace loom::fusion
