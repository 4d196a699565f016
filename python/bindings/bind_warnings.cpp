// SPDX-License-Identifier: BSD-3-Clause
// Warnings of kernels as Python's: its filters see them on the thread that waits.
#include "loom/backend/kernel_warnings.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include "bindings.h"
#include "gil.h"

namespace py = pybind11;

namespace loom::python {
namespace {

/// A WarningGiver (kernel_warnings.h): as PyTorch's own functions give theirs.
void give(const c10::Warning& warning) {
  if (Py_IsInitialized() == 0 || interpreter_is_gone()) {
    return c10::WarningHandler().process(warning);
  }
  const py::gil_scoped_acquire gil;
  try {
    const torch::PyWarningHandler gives_at_its_end;
    c10::warn(warning);
  } catch (const python_error&) {
    throw py::error_already_set();  // takes the exception, which is still Python's to raise
  }
}

}  // namespace

void bind_warnings(py::module_& module) {
  set_warning_giver(&give);
  module.def("_give_warnings", &give_kernel_warnings);
}

}  // namespace loom::python
