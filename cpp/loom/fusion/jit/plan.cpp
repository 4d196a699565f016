// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/plan.h"

#include <algorithm>
#include <utility>

namespace loom::fusion::jit {
namespace {

/// From this on, a value is rather stored and loaded than computed again. A plain instruction or a
/// load costs 1.
constexpr int kStashCost = 6;

int cost_of(Op op) {
  if (is_function(op)) return 30;
  const bool slow = op == Op::kDiv || op == Op::kSqrt || op == Op::kRsqrt || op == Op::kReciprocal;
  return slow ? 8 : 1;
}

/// How a loop comes by a value.
enum class Source : std::uint8_t { kNone, kMemory, kComputed, kStash };

class Planner {
 public:
  explicit Planner(const Body& body) : body_(body), values_(body.value_count()) {
    plan_.analysis = analyse(body);
    first_computed_.resize(values_, -1);
    stash_.resize(values_, -1);
  }

  Plan run() {
    find_needed();
    const int phases = plan_.analysis.phases;
    plan_.phases.resize(static_cast<std::size_t>(phases));
    sources_.assign(static_cast<std::size_t>(phases), std::vector<Source>(values_, Source::kNone));
    for (int phase = 0; phase < phases; ++phase) choose_sources(phase);
    for (int phase = 0; phase < phases; ++phase) list_items(phase);
    list_uniform_instructions();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const ValueInfo& info(ValueId value) const { return plan_.analysis.values[value]; }
  [[nodiscard]] const Instruction& instruction_of(ValueId value) const {
    return body_.instructions[value - body_.first_result()];
  }

  static std::array<ValueId, 3> operands_of(const Instruction& instruction) {
    return {instruction.a, instruction.b, instruction.c};
  }

  void find_needed() {
    plan_.needed.assign(values_, false);
    for (const Output& output : body_.outputs) plan_.needed[output.value] = true;
    for (std::size_t value = values_; value-- > body_.first_result();) {
      if (!plan_.needed[value]) continue;
      const Instruction& instruction = instruction_of(static_cast<ValueId>(value));
      plan_.calls |= is_function(instruction.op);
      for (int i = 0; i < operand_count(instruction.op); ++i) {
        plan_.needed[operands_of(instruction)[i]] = true;
      }
    }
    for (std::size_t value = 0; value < values_; ++value) {
      plan_.wide |= plan_.needed[value] && size_of(info(static_cast<ValueId>(value)).type) == 8;
    }
  }

  /// The values that the loop of `phase` is for: operands of reductions, or outputs.
  [[nodiscard]] std::vector<ValueId> roots(int phase) const {
    std::vector<ValueId> found;
    for (std::size_t value = body_.first_result(); value < values_; ++value) {
      const Instruction& instruction = instruction_of(static_cast<ValueId>(value));
      const bool ends_here = is_reduction(instruction.op) && plan_.needed[value] &&
                             info(static_cast<ValueId>(value)).phase == phase + 1;
      if (ends_here) found.push_back(instruction.a);
    }
    if (phase + 1 < plan_.analysis.phases) return found;
    for (const Output& output : body_.outputs) {
      if (!output.uniform) found.push_back(output.value);
    }
    return found;
  }

  /// From the last value to the first, so that all users of a value are known before it.
  void choose_sources(int phase) {
    std::vector<bool> wanted(values_, false);
    for (const ValueId root : roots(phase)) wanted[root] = true;
    std::vector<Source>& sources = sources_[static_cast<std::size_t>(phase)];
    for (std::size_t i = values_; i-- > 0;) {
      const auto value = static_cast<ValueId>(i);
      if (!wanted[value] || info(value).uniform) continue;
      sources[value] = choose_source(value);
      if (sources[value] != Source::kComputed) continue;
      if (first_computed_[value] < 0) first_computed_[value] = phase;
      const Instruction& instruction = instruction_of(value);
      for (int k = 0; k < operand_count(instruction.op); ++k) {
        wanted[operands_of(instruction)[k]] = true;
      }
    }
  }

  Source choose_source(ValueId value) {
    if (value < body_.first_result()) return Source::kMemory;
    if (stash_[value] >= 0) return Source::kStash;
    if (first_computed_[value] < 0 || info(value).type == Type::kMask) return Source::kComputed;
    std::vector<bool> seen(values_, false);
    if (cost_again(value, seen) < kStashCost) return Source::kComputed;
    stash_[value] = static_cast<int>(plan_.stashed.size());
    plan_.stashed.push_back(value);
    return Source::kStash;
  }

  int cost_again(ValueId value, std::vector<bool>& seen) const {
    if (info(value).uniform || seen[value]) return 0;
    seen[value] = true;
    if (value < body_.first_result() || stash_[value] >= 0) return 1;
    const Instruction& instruction = instruction_of(value);
    int cost = cost_of(instruction.op);
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      cost += cost_again(operands_of(instruction)[i], seen);
    }
    return cost;
  }

  void list_items(int phase) {
    const std::vector<Source>& sources = sources_[static_cast<std::size_t>(phase)];
    Loop& loop = plan_.phases[static_cast<std::size_t>(phase)].loop;
    loads_left_ = 0;
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      loads_left_ += sources[i] == Source::kMemory ? 1 : 0;
    }
    available_.assign(values_, false);
    stored_.assign(body_.outputs.size(), false);
    for (std::size_t value = body_.first_result(); value < values_; ++value) {
      const auto id = static_cast<ValueId>(value);
      const Instruction& instruction = instruction_of(id);
      if (sources[value] == Source::kComputed) {
        fetch_operands(phase, instruction);
        compute(phase, id);
      } else if (is_reduction(instruction.op) && plan_.needed[value] &&
                 info(id).phase == phase + 1) {
        fetch_operands(phase, instruction);
        accumulate(phase, id);
      }
      store_what_is_ready(phase);
    }
    if (phase + 1 == plan_.analysis.phases) {
      for (const Output& output : body_.outputs) {
        if (!output.uniform) fetch(phase, output.value);
      }
      store_what_is_ready(phase);
    }
    loop.calls = std::any_of(loop.items.begin(), loop.items.end(), [&](const Item& item) {
      return item.kind == Item::Kind::kCompute && is_function(body_.instructions[item.index].op);
    });
  }

  void fetch_operands(int phase, const Instruction& instruction) {
    for (int i = 0; i < operand_count(instruction.op); ++i) {
      fetch(phase, operands_of(instruction)[i]);
    }
  }

  void fetch(int phase, ValueId value) {
    if (available_[value] || info(value).uniform) return;
    const Source source = sources_[static_cast<std::size_t>(phase)][value];
    if (source == Source::kComputed) return;
    available_[value] = true;
    Item item{.has_result = true, .result = value};
    if (source == Source::kMemory) {
      item.kind = Item::Kind::kLoad;
      item.index = value;
      --loads_left_;
    } else {
      item.kind = Item::Kind::kUnstash;
      item.index = static_cast<std::uint8_t>(stash_[value]);
    }
    items(phase).push_back(item);
  }

  [[nodiscard]] Item compute_item(ValueId value) const {
    const Instruction& instruction = instruction_of(value);
    return {.kind = Item::Kind::kCompute,
            .index = static_cast<std::uint8_t>(value - body_.first_result()),
            .has_result = true,
            .operand_count = static_cast<std::uint8_t>(operand_count(instruction.op)),
            .result = value,
            .operands = operands_of(instruction)};
  }

  void compute(int phase, ValueId value) {
    available_[value] = true;
    items(phase).push_back(compute_item(value));
    if (stash_[value] < 0 || first_computed_[value] != phase) return;
    items(phase).push_back({.kind = Item::Kind::kStash,
                            .index = static_cast<std::uint8_t>(stash_[value]),
                            .operand_count = 1,
                            .operands = {value}});
  }

  void accumulate(int phase, ValueId value) {
    Loop& loop = plan_.phases[static_cast<std::size_t>(phase)].loop;
    Item item = compute_item(value);
    item.kind = Item::Kind::kAccumulate;
    item.has_result = false;
    loop.items.push_back(item);
    loop.reductions.push_back(item.index);
  }

  void store_what_is_ready(int phase) {
    if (loads_left_ > 0 || phase + 1 < plan_.analysis.phases) return;
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      const Output& output = body_.outputs[i];
      const bool ready = available_[output.value] || info(output.value).uniform;
      if (stored_[i] || output.uniform || !ready) continue;
      stored_[i] = true;
      items(phase).push_back({.kind = Item::Kind::kStore,
                              .index = static_cast<std::uint8_t>(i),
                              .operand_count = 1,
                              .operands = {output.value}});
    }
  }

  std::vector<Item>& items(int phase) {
    return plan_.phases[static_cast<std::size_t>(phase)].loop.items;
  }

  void list_uniform_instructions() {
    std::vector<bool> constant(values_, false);
    for (std::size_t i = body_.first_param(); i < body_.first_result(); ++i) constant[i] = true;
    for (std::size_t i = body_.first_result(); i < values_; ++i) {
      const auto value = static_cast<ValueId>(i);
      const Instruction& instruction = instruction_of(value);
      if (!plan_.needed[i] || !info(value).uniform || is_reduction(instruction.op)) continue;
      bool all_constant = true;
      for (int k = 0; k < operand_count(instruction.op); ++k) {
        all_constant = all_constant && constant[operands_of(instruction)[k]];
      }
      constant[i] = all_constant;
      std::vector<Item>& list =
          all_constant ? plan_.before_rows : plan_.phases[info(value).phase].uniform;
      list.push_back(compute_item(value));
    }
  }

  const Body& body_;
  const std::size_t values_;
  Plan plan_;
  std::vector<int> first_computed_;           ///< by value: the first phase that computes it, or -1
  std::vector<int> stash_;                    ///< by value: its place in plan_.stashed, or -1
  std::vector<std::vector<Source>> sources_;  ///< by phase and value
  // Of the loop that is being listed:
  std::vector<bool> available_, stored_;
  int loads_left_ = 0;
};

}  // namespace

bool is_function(Op op) noexcept {
  return (op >= Op::kExp && op <= Op::kLgamma) || (op >= Op::kPow && op <= Op::kFmod);
}

Plan make_plan(const Body& body) { return Planner(body).run(); }

}  // namespace loom::fusion::jit
