// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs a plan on the device's cores: cuts its rows and columns into blocks of about the same cost,
// gathers what a kernel cannot walk through, and calls the kernel. How the work is cut depends on
// the plan only. Thread: workers.

#include "loom/device/cores.h"
#include "loom/fusion/kernel.h"
#include "loom/fusion/plan.h"

#include <span>

namespace loom::fusion {

/// A plan with the kernel of its body. Requires: the plan has outputs.
struct Work {
  const Plan* plan;
  const Kernel* kernel;
};

/// Runs all of it as one grid; the plans work on separate memory.
/// Throws: std::bad_alloc when there is no memory for a core's scratch.
void execute(std::span<const Work> works, Cores& cores, int priority);

}  // namespace loom::fusion
