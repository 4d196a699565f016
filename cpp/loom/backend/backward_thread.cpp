// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/backward_thread.h"

#include "loom/base/options.h"

#include <ATen/Context.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/graph_task.h>

namespace loom {
namespace {

constinit thread_local bool t_chosen = false;

/// Whether the host has another device whose nodes the engine keeps on threads of their own.
bool other_accelerator() {
  return at::hasCUDA() || at::hasHIP() || at::hasXPU() || at::hasMPS() || at::hasMTIA() ||
         at::hasHPU() || at::hasMAIA() || at::hasXLA();
}

}  // namespace

void choose_backward_thread() {
  if (t_chosen || torch::autograd::get_current_graph_task_id() != -1) return;
  t_chosen = true;
  static const bool on_caller = options().backward_on_caller && !other_accelerator();
  if (on_caller) c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

void keep_backward_thread() noexcept { t_chosen = true; }

}  // namespace loom
