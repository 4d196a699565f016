// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One function for each topic, called in order by the module's initialisation with the GIL held.
// Bindings convert and delegate; what waits for a worker releases the GIL first.

#include <torch/csrc/utils/pybind.h>

namespace loom::python {

void bind_compiled(pybind11::module_& module);
void bind_cuda_name(pybind11::module_& module);
void bind_device(pybind11::module_& module);
void bind_distributed(pybind11::module_& module);
void bind_stream(pybind11::module_& module);
void bind_graph(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_random(pybind11::module_& module);
void bind_replay(pybind11::module_& module);
void bind_errors(pybind11::module_& module);
void bind_exit(pybind11::module_& module);
void bind_fallback(pybind11::module_& module);
void bind_fusion(pybind11::module_& module);
void bind_host_view(pybind11::module_& module);
void bind_warnings(pybind11::module_& module);

}  // namespace loom::python
