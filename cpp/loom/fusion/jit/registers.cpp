// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/registers.h"

#include <algorithm>
#include <bit>

namespace loom::fusion::jit {
namespace {

std::uint32_t first_bits(int count) {
  return count >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << count) - 1;
}

}  // namespace

Registers::Registers(VectorCode& code, const Plan& plan, Frame& frame)
    : code_(code), plan_(plan), frame_(frame), states_(plan.analysis.values.size()) {}

Registers::Pool& Registers::pool_of(ValueId value) {
  return type_of(value) == Type::kMask && code_.mask_registers() > 0 ? masks_ : vectors_;
}

void Registers::prepare(const std::vector<Item>& items, int reserved) {
  items_ = &items;
  next_.resize(items.size());
  std::vector<std::uint16_t> seen(states_.size(), kNever);
  for (std::size_t i = items.size(); i-- > 0;) {
    const Item& item = items[i];
    for (int k = 0; k < item.operand_count; ++k) next_[i][k] = seen[item.operands[k]];
    next_[i][3] = item.has_result ? seen[item.result] : kNever;
    for (int k = 0; k < item.operand_count; ++k) {
      seen[item.operands[k]] = static_cast<std::uint16_t>(i);
    }
  }
  vectors_ = Pool{.usable = first_bits(code_.vector_registers() - reserved)};
  masks_ = Pool{.usable = first_bits(code_.mask_registers())};
  restart();
}

int Registers::most_live() const {
  std::vector<bool> live(states_.size(), false);
  int count = 0, most = 0;
  const auto in_vectors = [&](ValueId value) {
    return !is_uniform(value) && (type_of(value) != Type::kMask || code_.mask_registers() == 0);
  };
  for (std::size_t i = items_->size(); i-- > 0;) {
    const Item& item = (*items_)[i];
    if (item.has_result && live[item.result]) {
      live[item.result] = false;
      --count;
    }
    for (int k = 0; k < item.operand_count; ++k) {
      const ValueId operand = item.operands[k];
      if (live[operand] || !in_vectors(operand)) continue;
      live[operand] = true;
      ++count;
    }
    most = std::max(most, count + 1);
  }
  return most;
}

void Registers::pin_uniform_values() {
  std::vector<int> uses(states_.size(), 0);
  std::vector<ValueId> candidates;
  for (const Item& item : *items_) {
    for (int k = 0; k < item.operand_count; ++k) {
      const ValueId operand = item.operands[k];
      if (!is_uniform(operand) || &pool_of(operand) != &vectors_) continue;
      if (uses[operand]++ == 0) candidates.push_back(operand);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](ValueId a, ValueId b) { return uses[a] > uses[b]; });
  constexpr std::size_t kOperands = 3;  // those that are not pinned need registers, too
  const std::size_t total = static_cast<std::size_t>(std::popcount(vectors_.usable));
  const std::size_t taken = static_cast<std::size_t>(most_live());
  std::size_t room = total > taken ? total - taken : 0;
  if (room < candidates.size()) room = room > kOperands ? room - kOperands : 0;
  candidates.resize(std::min(candidates.size(), room));
  for (const ValueId value : candidates) {
    const int reg = acquire(value);
    code_.broadcast(type_of(value), reg, code_.rsp + frame_.home(value));
    vectors_.pinned |= std::uint32_t{1} << reg;
  }
}

void Registers::restart() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    const Pool& pool = pool_of(static_cast<ValueId>(i));
    if (state.reg >= 0 && (pool.pinned >> state.reg & 1) != 0) continue;
    if (state.slot >= 0) frame_.give_slot(state.slot);
    state = State{};
  }
  for (Pool* pool : {&vectors_, &masks_}) {
    pool->free = pool->usable & ~pool->pinned;
    pool->locked = 0;
  }
}

void Registers::save(ValueId value) {
  State& state = states_[value];
  if (is_uniform(value) || state.slot >= 0) return;
  state.slot = frame_.take_slot();
  code_.spill(type_of(value), state.reg, code_.rsp + state.slot);
}

void Registers::forget(ValueId value) {
  State& state = states_[value];
  Pool& pool = pool_of(value);
  pool.free |= std::uint32_t{1} << state.reg;
  pool.locked &= ~(std::uint32_t{1} << state.reg);
  state.reg = -1;
}

void Registers::make_room(Pool& pool) {
  ValueId farthest = 0;
  int next = -1;
  for (std::uint32_t left = pool.usable & ~pool.free & ~pool.locked & ~pool.pinned; left != 0;
       left &= left - 1) {
    const ValueId owner = pool.owner[static_cast<std::size_t>(std::countr_zero(left))];
    if (static_cast<int>(states_[owner].next) <= next) continue;
    next = states_[owner].next;
    farthest = owner;
  }
  save(farthest);
  forget(farthest);
}

int Registers::acquire(ValueId value) {
  Pool& pool = pool_of(value);
  if (pool.free == 0) make_room(pool);
  const int reg = std::countr_zero(pool.free);
  const std::uint32_t bit = std::uint32_t{1} << reg;
  pool.free &= ~bit;
  pool.locked |= bit;
  pool.owner[static_cast<std::size_t>(reg)] = value;
  states_[value].reg = static_cast<std::int8_t>(reg);
  return reg;
}

std::array<int, 3> Registers::operands(std::size_t i) {
  const Item& item = (*items_)[i];
  std::array<int, 3> found = {};
  for (int k = 0; k < item.operand_count; ++k) {
    const State& state = states_[item.operands[k]];
    if (state.reg >= 0) pool_of(item.operands[k]).locked |= std::uint32_t{1} << state.reg;
  }
  for (int k = 0; k < item.operand_count; ++k) {
    const ValueId value = item.operands[k];
    State& state = states_[value];
    if (state.reg < 0) {
      const int reg = acquire(value);
      if (is_uniform(value)) {
        code_.broadcast(type_of(value), reg, code_.rsp + frame_.home(value));
      } else {
        code_.fill(type_of(value), reg, code_.rsp + state.slot);
      }
    }
    found[static_cast<std::size_t>(k)] = state.reg;
  }
  return found;
}

void Registers::release(ValueId value) {
  State& state = states_[value];
  if (state.reg >= 0) {
    const Pool& pool = pool_of(value);
    if ((pool.pinned >> state.reg & 1) != 0) return;
    forget(value);
  }
  if (state.slot >= 0) frame_.give_slot(state.slot);
  state.slot = -1;
}

void Registers::release_operands(std::size_t i) {
  const Item& item = (*items_)[i];
  for (int k = 0; k < item.operand_count; ++k) {
    states_[item.operands[k]].next = next_[i][k];
    if (next_[i][k] == kNever) release(item.operands[k]);
  }
}

int Registers::result(std::size_t i) {
  release_operands(i);
  const ValueId value = (*items_)[i].result;
  states_[value].next = next_[i][3];
  return acquire(value);
}

void Registers::finish(std::size_t i) {
  const Item& item = (*items_)[i];
  if (!item.has_result) {
    release_operands(i);
  } else if (next_[i][3] == kNever) {
    release(item.result);
  }
  vectors_.locked = masks_.locked = 0;
}

void Registers::save_for_call(std::size_t i) {
  release_operands(i);
  for (Pool* pool : {&vectors_, &masks_}) {
    for (std::uint32_t left = pool->usable & ~pool->free; left != 0; left &= left - 1) {
      const ValueId owner = pool->owner[static_cast<std::size_t>(std::countr_zero(left))];
      save(owner);
      forget(owner);
    }
  }
}

void Registers::take_call_result(std::size_t i) {
  const ValueId value = (*items_)[i].result;
  states_[value].next = next_[i][3];
  acquire(value);  // all are free: the first one
}

}  // namespace loom::fusion::jit
