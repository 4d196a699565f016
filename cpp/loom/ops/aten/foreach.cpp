// SPDX-License-Identifier: BSD-3-Clause
// Operators on lists of tensors. ATen composes them of one call a tensor, on any device; here the
// calls of one list are independent programs, so that the next operator on the same list finds the
// program of each tensor open (fusion/program_set.h), and an optimiser's step is one pass over
// memory.

#include "loom/backend/registration.h"
#include "loom/fusion/program_set.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

namespace loom::ops {
namespace {

// The composition is registered for all devices under one alias key; by CPU's name it is found
// without coming back here, and the tensors decide where its calls go.
void run_list(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const fusion::IndependentScope scope;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

bool composes_calls(const c10::OperatorName& name) {
  return name.name.starts_with("aten::_foreach_");
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!composes_calls(name)) continue;
    const std::string full =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_list>());
  }
}

}  // namespace loom::ops
