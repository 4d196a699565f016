// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/interpreter_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace loom::fusion {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
constexpr std::int64_t kTile = 1024;
constexpr std::size_t kBufferBytes = kTile * sizeof(double);

std::uint8_t size_of(Type type) {
  if (type == Type::kMask) return 1;
  return type == Type::kInt32 || type == Type::kFloat ? 4 : 8;
}

/// Whether elements look the same in memory and in tiles. Bytes of a bool may be other than 0 and 1
/// in memory, so loads do not count.
bool stored_as_is(DType dtype) {
  return dtype == DType::kBool || dtype == DType::kInt32 || dtype == DType::kInt64 ||
         dtype == DType::kFloat || dtype == DType::kDouble;
}
bool loaded_as_is(DType dtype) { return stored_as_is(dtype) && dtype != DType::kBool; }

class Planner {
 public:
  Planner(const Body& body, const Primitives& primitives)
      : body_(body),
        primitives_(primitives),
        analysis_(analyse(body)),
        last_phase_(static_cast<std::size_t>(analysis_.phases) - 1),
        needed_(body.value_count()),
        constant_(body.value_count()),
        later_phase_(body.value_count()),
        slots_(body.value_count()) {}

  InterpreterPlan make() {
    find_needed();
    plan_.phases.resize(last_phase_ + 1);
    plan_.tile = kTile;
    place_operands();
    for (std::size_t phase = 0; phase <= last_phase_; ++phase) plan_phase(phase);
    plan_uniform_outputs();
    find_inputs_read_later();
    return std::move(plan_);
  }

 private:
  // Facts about values.

  const Instruction& instruction(std::size_t value) const {
    return body_.instructions[value - body_.first_result()];
  }
  bool is_input(std::size_t value) const { return value < body_.first_param(); }
  bool is_result(std::size_t value) const { return value >= body_.first_result(); }
  bool uniform(std::size_t value) const { return analysis_.values[value].uniform; }
  std::size_t phase_of(std::size_t value) const { return analysis_.values[value].phase; }
  Type type_of(std::size_t value) const { return analysis_.values[value].type; }

  /// The phase whose tiles an instruction on elements belongs to.
  std::size_t phase_of_work(std::size_t value) const {
    return phase_of(value) - (is_reduction(instruction(value).op) ? 1 : 0);
  }
  bool is_tile_work(std::size_t value) const {
    return is_result(value) && needed_[value] &&
           (!uniform(value) || is_reduction(instruction(value).op));
  }

  std::vector<std::size_t> operands_of(std::size_t value) const {
    const Instruction& i = instruction(value);
    const std::array<std::size_t, 3> all = {i.a, i.b, i.c};
    return {all.begin(), all.begin() + operand_count(i.op)};
  }

  void find_needed() {
    for (const Output& output : body_.outputs) {
      needed_[output.value] = true;
      later_phase_[output.value] = phase_of(output.value) < last_phase_;
      if (output.value < body_.first_param()) output_inputs_.push_back(output.value);
    }
    for (std::size_t value = body_.value_count(); value-- > body_.first_result();) {
      if (!needed_[value]) continue;
      for (const std::size_t operand : operands_of(value)) {
        needed_[operand] = true;
        if (phase_of(operand) < phase_of_work(value)) later_phase_[operand] = true;
      }
    }
    for (std::size_t value = body_.first_param(); value < body_.value_count(); ++value) {
      constant_[value] = true;
      if (!is_result(value)) continue;
      for (const std::size_t operand : operands_of(value)) {
        constant_[value] = constant_[value] && constant_[operand];
      }
    }
  }

  bool is_output(std::size_t value) const {
    return std::find(output_inputs_.begin(), output_inputs_.end(), value) != output_inputs_.end();
  }

  // Slots and scratch memory.

  Slot new_slot() { return static_cast<Slot>(plan_.slots++); }

  Slot new_fixed(std::size_t bytes) {
    const Slot slot = new_slot();
    plan_.buffers.push_back({slot, plan_.fixed_bytes});
    plan_.fixed_bytes += (bytes + 63) / 64 * 64;
    return slot;
  }
  Slot new_cell() { return new_fixed(sizeof(double)); }

  Slot take_tile(std::uint8_t size) {
    std::vector<Slot>& free = free_tiles_[size];
    if (free.empty()) return new_fixed(static_cast<std::size_t>(kTile) * size);
    const Slot slot = free.back();
    free.pop_back();
    return slot;
  }

  /// Uniform operands are where they are in memory, or in a cell if they must be converted. So must
  /// those be that are outputs: a store could otherwise replace them before they are stored.
  void place_operands() {
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      const Slot memory = new_slot();
      plan_.inputs.push_back({memory, static_cast<std::uint8_t>(i)});
      const Input& input = body_.inputs[i];
      if (!needed_[i]) continue;
      if (loaded_as_is(input.dtype) && !is_output(i)) {
        slots_[i] = memory;
      } else if (input.uniform) {
        slots_[i] = new_cell();
        plan_.phases[0].row.push_back({primitives_.load(input.dtype), *slots_[i], memory});
      }
    }
    for (std::size_t i = 0; i < body_.params.size(); ++i) {
      slots_[body_.first_param() + i] = new_slot();
      plan_.params.push_back({*slots_[body_.first_param() + i], static_cast<std::uint8_t>(i)});
    }
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      plan_.outputs.push_back({new_slot(), static_cast<std::uint8_t>(i)});
    }
  }

  // The steps of one phase.

  void plan_phase(std::size_t phase) {
    for (std::size_t v = body_.first_result(); v < body_.value_count(); ++v) {
      if (!needed_[v] || !uniform(v) || is_reduction(instruction(v).op) || phase_of(v) != phase) {
        continue;
      }
      slots_[v] = new_cell();
      (constant_[v] ? plan_.once : plan_.phases[phase].row).push_back(step_of(v));
    }
    find_last_uses(phase);
    // Inputs that are stored are read before anything may replace them.
    for (const std::size_t input : output_inputs_) {
      if (phase == last_phase_ && !uniform(input)) load(input, phase);
    }
    for (std::size_t v = body_.first_result(); v < body_.value_count(); ++v) {
      if (is_tile_work(v) && phase_of_work(v) == phase) plan_instruction(v, phase);
    }
    if (phase == last_phase_) plan_stores();
    for (std::size_t v = 0; v < body_.first_param(); ++v) {
      if (loaded_as_is(body_.inputs[v].dtype) && !is_output(v)) continue;
      slots_[v] = uniform(v) ? slots_[v] : std::nullopt;
    }
    free_tiles_ = {};
    free_tiles_.resize(sizeof(double) + 1);
    in_tile_.assign(in_tile_.size(), false);
    for (const Buffer& buffer : tiles_) free_tiles_[buffer.size].push_back(buffer.slot);
    find_moving(phase);
  }

  void find_last_uses(std::size_t phase) {
    last_use_.assign(body_.value_count(), 0);
    for (std::size_t v = body_.first_result(); v < body_.value_count(); ++v) {
      if (!is_tile_work(v) || phase_of_work(v) != phase) continue;
      for (const std::size_t operand : operands_of(v)) last_use_[operand] = v;
    }
    if (phase != last_phase_) return;
    for (const Output& output : body_.outputs) last_use_[output.value] = kNever;
  }

  void load(std::size_t input, std::size_t phase) {
    if (slots_[input].has_value()) return;
    slots_[input] = take_tile_for(input);
    plan_.phases[phase].tile.push_back(
        {primitives_.load(body_.inputs[input].dtype), *slots_[input], plan_.inputs[input].slot});
  }

  Slot take_tile_for(std::size_t value) {
    const std::uint8_t size = size_of(type_of(value));
    const std::size_t before = plan_.slots;
    const Slot slot = take_tile(size);
    if (plan_.slots != before) tiles_.push_back({slot, 0, size});
    in_tile_[value] = true;
    return slot;
  }

  /// Gives the tile back if nothing uses the value any more.
  void release(std::size_t value, std::size_t user) {
    if (!in_tile_[value] || last_use_[value] != user) return;
    in_tile_[value] = false;
    free_tiles_[size_of(type_of(value))].push_back(*slots_[value]);
  }

  void plan_instruction(std::size_t v, std::size_t phase) {
    const Instruction& i = instruction(v);
    for (const std::size_t operand : operands_of(v)) load(operand, phase);
    if (is_reduction(i.op)) {
      const Slot lanes = new_fixed(kReductionLanes * sizeof(double));
      slots_[v] = new_cell();
      plan_.phases[phase].row.push_back({primitives_.start(i.op, i.type), lanes});
      plan_.phases[phase].tile.push_back(
          {primitives_.instruction(i.op, i.type, 0), lanes, *slots_[i.a]});
      plan_.phases[phase].finish.push_back({primitives_.finish(i.op, i.type), *slots_[v], lanes});
      release(i.a, v);
      return;
    }
    // A value that nothing uses in this phase is for a later one, so no operand is released that
    // the step still needs: primitives may write over operands of the same size.
    for (const std::size_t operand : operands_of(v)) release(operand, v);
    slots_[v] = place_result(v);
    plan_.phases[phase].tile.push_back(step_of(v));
  }

  Slot place_result(std::size_t v) {
    if (later_phase_[v]) {
      const Slot slot = new_slot();
      plan_.row_buffers.push_back({slot, 0, size_of(type_of(v))});
      return slot;
    }
    for (std::size_t o = 0; o < body_.outputs.size() && !streams(); ++o) {
      const Output& output = body_.outputs[o];
      if (output.value != v || output.uniform || !stored_as_is(output.dtype)) continue;
      const Slot slot = new_slot();
      plan_.directs.push_back({primitives_.store(output.dtype),
                               slot,
                               plan_.outputs[o].slot,
                               static_cast<std::uint8_t>(o),
                               plan_.fixed_bytes,
                               {}});
      plan_.fixed_bytes += static_cast<std::size_t>(kTile) * size_of(type_of(v));
      return slot;
    }
    return take_tile_for(v);
  }

  Step step_of(std::size_t v) const {
    const Instruction& i = instruction(v);
    Step step{.out = *slots_[v]};
    unsigned uniform_operands = 0;
    const std::array<Slot*, 3> slots = {&step.a, &step.b, &step.c};
    const auto operands = operands_of(v);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      *slots[k] = *slots_[operands[k]];
      if (uniform(operands[k])) uniform_operands |= 1U << k;
    }
    step.run = primitives_.instruction(i.op, i.type, uniform(v) ? 0 : uniform_operands);
    return step;
  }

  // Outputs.

  void plan_stores() {
    Phase& phase = plan_.phases[last_phase_];
    for (std::size_t o = 0; o < body_.outputs.size(); ++o) {
      const Output& output = body_.outputs[o];
      const Slot value = slots_[output.value].value_or(0), memory = plan_.outputs[o].slot;
      if (output.uniform || is_direct(o)) continue;
      if (uniform(output.value)) {
        const Slot cell = new_cell();
        phase.row.push_back({primitives_.store(output.dtype), cell, value});
        phase.tile.push_back({primitives_.fill(fusion::size_of(output.dtype)), memory, cell});
      } else if (!streams()) {
        phase.tile.push_back({primitives_.store(output.dtype), memory, value});
      } else {
        Slot from = value;
        if (!stored_as_is(output.dtype)) {
          from = new_fixed(kBufferBytes);
          phase.tile.push_back({primitives_.store(output.dtype), from, value});
        }
        phase.tile.push_back({primitives_.stream(fusion::size_of(output.dtype)), memory, from});
      }
    }
  }

  /// Whether outputs are written past the caches: tiles begin anywhere where they are not aligned.
  bool streams() const { return body_.streaming && body_.aligned; }

  bool is_direct(std::size_t output) const {
    return std::any_of(plan_.directs.begin(), plan_.directs.end(),
                       [output](const Direct& direct) { return direct.output == output; });
  }

  void plan_uniform_outputs() {
    for (std::size_t o = 0; o < body_.outputs.size(); ++o) {
      const Output& output = body_.outputs[o];
      if (!output.uniform) continue;
      plan_.row_end.push_back(
          {primitives_.store(output.dtype), plan_.outputs[o].slot, *slots_[output.value]});
    }
  }

  // What moves, and what may be written early.

  void find_moving(std::size_t index) {
    Phase& phase = plan_.phases[index];
    const auto used = [&phase](Slot slot) {
      return std::any_of(phase.tile.begin(), phase.tile.end(), [slot](const Step& step) {
        return step.out == slot || step.a == slot || step.b == slot || step.c == slot;
      });
    };
    const auto add = [&](Slot slot, std::size_t size) {
      if (used(slot)) phase.moving.push_back({slot, static_cast<std::uint8_t>(size)});
    };
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      if (!body_.inputs[i].uniform) {
        add(plan_.inputs[i].slot, fusion::size_of(body_.inputs[i].dtype));
      }
    }
    for (std::size_t o = 0; o < body_.outputs.size(); ++o) {
      if (!body_.outputs[o].uniform) {
        const auto size = static_cast<std::uint8_t>(fusion::size_of(body_.outputs[o].dtype));
        if (index == last_phase_) phase.moving.push_back({plan_.outputs[o].slot, size});
      }
    }
    for (const Buffer& buffer : plan_.row_buffers) add(buffer.slot, buffer.size);
  }

  void find_inputs_read_later() {
    const std::vector<Step>& steps = plan_.phases[last_phase_].tile;
    for (Direct& direct : plan_.directs) {
      auto step = std::find_if(steps.begin(), steps.end(),
                               [&](const Step& s) { return s.out == direct.slot; });
      for (++step; step != steps.end(); ++step) {
        for (const Operand& input : plan_.inputs) {
          if (step->a == input.slot || step->b == input.slot || step->c == input.slot) {
            direct.later_inputs.push_back(input.index);
          }
        }
      }
    }
  }

  const Body& body_;
  const Primitives& primitives_;
  const Analysis analysis_;
  const std::size_t last_phase_;
  std::vector<bool> needed_, constant_;
  std::vector<bool> later_phase_;  ///< of values: a phase after their own uses them
  std::vector<std::optional<Slot>> slots_;
  std::vector<std::size_t> output_inputs_;  ///< inputs that are outputs
  std::vector<std::size_t> last_use_;       ///< in the phase at hand: the result that uses a value
  std::vector<std::vector<Slot>> free_tiles_ = std::vector<std::vector<Slot>>(sizeof(double) + 1);
  std::vector<Buffer> tiles_;
  std::vector<bool> in_tile_ = std::vector<bool>(256);
  InterpreterPlan plan_;
};

}  // namespace

InterpreterPlan make_interpreter_plan(const Body& body, const Primitives& primitives) {
  return Planner(body, primitives).make();
}

}  // namespace loom::fusion
