// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/foresight.h"

#include "loom/fusion/plan.h"
#include "loom/fusion/program.h"

#include <memory>

namespace loom::fusion {

bool runs_as_machine_code(const Expression& expression) {
  const auto program = std::make_unique<Program>();  // large for a stack
  program->reset();
  if (!program->append(expression)) return false;
  program->close();
  Plan plan;
  plan.make(*program);
  return !plan.body().outputs.empty() && !plan.gathers() && compile(plan.body()) != nullptr;
}

}  // namespace loom::fusion
