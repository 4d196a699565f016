// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where a backward pass runs. PyTorch's engine gives the nodes of an accelerator to a thread of its
// own for each device, which costs two changes of threads a call and buys nothing here: what a node
// does is submit commands. So backward runs on the thread that calls it, by PyTorch's own switch
// (`torch.autograd.set_multithreading_enabled`, c10::AutogradState), which is a thread's. A thread
// is switched when it first asks for its current stream, not while it runs nodes, and never again,
// so that who sets the switch afterwards is obeyed. A backward pass that is the thread's first use
// of loom has copied the switch by then; the next one obeys it. Nothing changes with
// LOOM_BACKWARD_THREAD=device, nor beside another accelerator, whose nodes the switch would move.
// Thread: any, each has its own choice.

#include "loom/base/export.h"

namespace loom {

/// At the calling thread's first use of a device.
void choose_backward_thread();

/// The calling thread's switch was set by its user, who keeps it even if loom comes later.
LOOM_API void keep_backward_thread() noexcept;

}  // namespace loom
