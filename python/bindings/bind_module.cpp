// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/library.h"

#include "bindings.h"

PYBIND11_MODULE(_C, module) {
  loom::check_registered();
  module.attr("__version__") = LOOM_VERSION;
  module.def("_make_symbols_global", &loom::make_symbols_global);
  loom::python::bind_compiled(module);
  loom::python::bind_cuda_name(module);
  loom::python::bind_device(module);
  loom::python::bind_distributed(module);
  loom::python::bind_stream(module);
  loom::python::bind_graph(module);
  loom::python::bind_memory(module);
  loom::python::bind_random(module);
  loom::python::bind_replay(module);
  loom::python::bind_errors(module);
  loom::python::bind_exit(module);
  loom::python::bind_fallback(module);
  loom::python::bind_fusion(module);
  loom::python::bind_host_view(module);
  loom::python::bind_warnings(module);
}
