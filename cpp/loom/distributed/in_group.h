// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A command's body that runs an algorithm of the whole group. Thread: the group's queue.

#include "loom/collectives/algorithms.h"
#include "loom/distributed/command.h"

#include <utility>

namespace loom::distributed {

template <class Run>
[[nodiscard]] Command::Body in_group(Run run) {
  return
      [run = std::move(run)](Engine& engine, const collectives::Operation& operation, Completion&) {
        collectives::Transport& transport = engine.transport();
        transport.begin(operation);
        run(transport);
        transport.finish();
      };
}

}  // namespace loom::distributed
