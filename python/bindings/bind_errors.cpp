// SPDX-License-Identifier: BSD-3-Clause
// What asynchronous errors know of the Python program, and what waits owe it: where a command was
// submitted, and the handlers of its signals.
#include "loom/device/failure.h"
#include "loom/device/queue.h"
#include "loom/device/timeline.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>

#include "bindings.h"
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace py = pybind11;

namespace loom::python {
namespace {

/// Where the operators were called whose gradients may be asked for, by the thread and the number
/// that autograd gave their nodes. Used with the GIL held.
class ForwardStacks {
 public:
  using Node = std::pair<std::uint64_t, std::uint64_t>;

  /// The first submission after a node was made is that of its operator.
  void note(const Node& node, const std::string& stack) {
    constexpr std::size_t kMost = 65536;
    if (stacks_.size() >= kMost) stacks_.erase(stacks_.begin());
    stacks_.emplace(node, stack);
  }
  [[nodiscard]] std::string of(const Node& node) const {
    const auto found = stacks_.find(node);
    return found == stacks_.end() ? std::string() : found->second;
  }

 private:
  std::map<Node, std::string> stacks_;
};

ForwardStacks& forward_stacks() {
  static auto* const stacks = new ForwardStacks;  // leaked: operators may run in static destructors
  return *stacks;
}

/// The frames of this thread, innermost last; none on threads that run no Python (autograd's).
std::string python_frames() {
  if (PyEval_GetFrame() == nullptr) return {};
  return py::module_::import("torch_loom.errors").attr("_frames")().cast<std::string>();
}

std::string describe_call() {
  const std::string stack = python_frames();
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    const std::uint64_t next = at::sequence_number::peek();
    if (next > 0) {
      forward_stacks().note({at::RecordFunction::currentThreadId(), next - 1}, stack);
    }
    return stack;
  }
  const std::string forward = forward_stacks().of({node->thread_id(), node->sequence_nr()});
  if (forward.empty()) return stack;
  return stack + "in " + node->name() + ", the backward of what was called at\n" + forward;
}

/// A StackProvider (queue.h).
std::string submission_stack() {
  static thread_local bool inside = false;  // Python code may submit in its turn
  if (inside || Py_IsInitialized() == 0) return {};
  inside = true;
  std::string stack;
  try {
    const py::gil_scoped_acquire gil;
    stack = describe_call();
  } catch (const std::exception&) {
    stack.clear();  // an error without its place is better than another error
  }
  inside = false;
  return stack;
}

unsigned long g_main_thread = 0;  // Python's; set once at import

/// What the dispatcher of this thread leaves out for the program, without what the operators leave
/// out that called the wait: autograd's keys, unless the program is in inference mode.
c10::impl::LocalDispatchKeySet keys_of_program() {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet in_place(c10::DispatchKey::ADInplaceOrView);
  keys.excluded_ = keys.excluded_ - in_place;
  if (!c10::InferenceMode::is_enabled()) {
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset;
  }
  return keys;
}

/// A SignalHandler (timeline.h): Python runs its handlers on its main thread.
void run_signal_handlers() {
  if (PyThread_get_thread_ident() != g_main_thread || Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  const c10::impl::ForceDispatchKeyGuard as_the_program(keys_of_program());
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

void bind_errors(py::module_& module) {
  g_main_thread =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  set_stack_provider(&submission_stack);
  set_signal_handler(&run_signal_handlers);
  module.def("_error_stacks", &error_stacks);
  module.def("_set_error_stacks", &set_error_stacks);
  module.def("_report_unseen_errors", &report_unseen_failures);
}

}  // namespace loom::python
