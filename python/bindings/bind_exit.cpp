// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"
#include "loom/device/device.h"
#include "loom/device/thread.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "bindings.h"
#include "gil.h"
#include <filesystem>
#include <fstream>
#include <string>

namespace py = pybind11;

namespace loom::python {
namespace {

/// Whether autograd has started its device threads. They carry names, and nothing else tells.
bool autograd_threads_exist() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with("pt_autograd_")) return true;
  }
  return false;
}

/// Waits until autograd's device threads have dropped what they hold of backward passes.
///
/// backward() returns when its gradients are there; its thread drops the pass a little later, and
/// takes the GIL for that, since the pass carries Python's context. When the interpreter ends in
/// between, that thread ends the process with std::terminate. A thread that works on a second pass
/// has dropped the first one, and this second pass is made without Python's context.
void drain_autograd_threads() {
  if (!autograd_threads_exist()) return;
  const c10::AutoGradMode with_gradients(true);
  const auto count = device_count_or_zero();
  for (c10::DeviceIndex index = 0; index < count; ++index) {
    const auto options = at::TensorOptions().device(to_c10(index));
    const at::Tensor leaf = at::empty({1}, options).set_requires_grad(true);
    (void)torch::autograd::grad({leaf.view({1})}, {leaf}, {at::empty({1}, options)});
  }
}

}  // namespace

void bind_exit(py::module_& module) {
  // The interpreter calls it when it has ended and all of Python's objects are gone, but before the
  // static objects of the process are destroyed, which commands may still use. Python has room for
  // few such functions; without it the exit handler does what can be done.
  (void)Py_AtExit(&stop_threads);
  module.def("_note_ending_thread", &note_ending_thread);
  module.def("_drain_autograd_threads", &drain_autograd_threads, py::call_guard<GilRelease>());
}

}  // namespace loom::python
