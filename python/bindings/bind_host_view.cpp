// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/host_view.h"

#include "bindings.h"
#include "gil.h"

namespace py = pybind11;

namespace loom::python {

void bind_host_view(py::module_& module) {
  const py::call_guard<GilRelease> without_gil;
  module.def("_memory_is_unified", &ops::memory_is_unified);
  module.def("_view_on_host", &ops::view_on_host, without_gil);
  module.def("_view_on_device", &ops::view_on_device, without_gil);
}

}  // namespace loom::python
