// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/failure_flow.h"

#include "loom/device/address.h"
#include "loom/device/failed_memory.h"
#include "loom/fusion/op.h"

#include <array>
#include <cstddef>

namespace loom::fusion {
namespace {

/// Whether the elements fill all of the location's range.
bool fills_range(const Location& location, const Space& space) {
  std::size_t bytes = size_of(location.dtype);
  for (int d = 0; d < space.dims; ++d) {
    if (location.stride(d, space) != 0) bytes *= static_cast<std::size_t>(space.sizes[d]);
  }
  return bytes == static_cast<std::size_t>(location.end - location.begin);
}

}  // namespace

Access access_of(const Location& location, const Space& space, bool writes) {
  AccessKind kind = AccessKind::kRead;
  if (writes) kind = fills_range(location, space) ? AccessKind::kReplace : AccessKind::kUpdate;
  return {device_address(location.begin), static_cast<std::size_t>(location.end - location.begin),
          kind};
}

// Delegates, so that what it has changed is undone if the rest throws.
FailureFlow::FailureFlow(Program& program, const Queue& queue) : FailureFlow(program) {
  std::vector<FailurePtr> of_value(program.values().size());
  for (const RecordedLoad& load : program.loads()) {
    of_value[load.value] = queue.failure_of({access_of(load.from, program.space(), false)});
  }
  // Values are numbered in the order in which they are made, so operands come before results.
  for (std::size_t v = 0; v < of_value.size(); ++v) {
    const Program::Value& value = program.values()[v];
    if (value.kind != Program::ValueKind::kResult) continue;
    const Instruction& instruction = program.instructions()[value.index];
    const std::array operands{instruction.a, instruction.b, instruction.c};
    for (int i = 0; i < operand_count(instruction.op) && of_value[v] == nullptr; ++i) {
      of_value[v] = of_value[operands[static_cast<std::size_t>(i)]];
    }
  }
  of_store_.reserve(program.stores().size());
  for (std::size_t s = 0; s < program.stores().size(); ++s) {
    const RecordedStore& store = program.stores()[s];
    of_store_.push_back(store.dead ? nullptr : of_value[store.value]);
    if (store.dead) continue;
    if (of_store_.back() != nullptr) {
      program.set_store_dead(s, true);
    } else {
      // What keeps elements that the program does not write keeps their failure.
      of_store_.back() = queue.failure_of({access_of(store.to, program.space(), true)});
    }
  }
}

FailureFlow::~FailureFlow() { restore(); }

void FailureFlow::restore() noexcept {
  for (std::size_t s = 0; s < of_store_.size(); ++s) {
    if (of_store_[s] != nullptr) program_.set_store_dead(s, false);
  }
}

void FailureFlow::apply(Queue& queue) {
  restore();
  for (std::size_t s = 0; s < of_store_.size(); ++s) {
    const RecordedStore& store = program_.stores()[s];
    const AccessList accesses{access_of(store.to, program_.space(), true)};
    if (of_store_[s] != nullptr) {
      queue.fail_writes(accesses, of_store_[s]);
    } else if (!store.dead) {
      FailedMemory::clear(accesses);
    }
  }
}

}  // namespace loom::fusion
