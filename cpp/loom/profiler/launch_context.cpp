// SPDX-License-Identifier: BSD-3-Clause
#include "loom/profiler/launch_context.h"

#include "loom/device/command_trace.h"

#include <vector>

namespace loom::profiler {
namespace {

struct Entered {
  std::uint64_t session = 0;
  std::vector<std::uint64_t> operations;
  std::vector<std::uint64_t> annotations;

  [[nodiscard]] std::vector<std::uint64_t>& of(ContextKind kind) {
    return kind == ContextKind::kOperation ? operations : annotations;
  }
  void publish() const {
    const auto innermost = [](const auto& ids) { return ids.empty() ? 0 : ids.back(); };
    CommandTrace::set_context({session, innermost(operations), innermost(annotations)});
  }
};

thread_local Entered t_entered;

}  // namespace

void enter_context(std::uint64_t session, ContextKind kind, std::uint64_t id) {
  if (t_entered.session != session) {
    t_entered.session = session;
    t_entered.operations.clear();
    t_entered.annotations.clear();
  }
  t_entered.of(kind).push_back(id);
  t_entered.publish();
}

void leave_context(std::uint64_t session, ContextKind kind) {
  if (t_entered.session != session || t_entered.of(kind).empty()) return;
  t_entered.of(kind).pop_back();
  t_entered.publish();
}

}  // namespace loom::profiler
