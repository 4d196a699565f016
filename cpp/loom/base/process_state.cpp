// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/process_state.h"

#include "loom/base/check.h"

namespace loom::detail {

std::atomic<ProcessState> g_process_state{ProcessState::kRunning};

void throw_forked() {
  throw_error(
      "Cannot re-initialize loom in forked subprocess. To use loom with multiprocessing, you must "
      "use the 'spawn' start method");
}

}  // namespace loom::detail
