// SPDX-License-Identifier: BSD-3-Clause
#include "bindings.h"
#include "loom/backend/generator.h"

namespace loom::python {

void bind_random(pybind11::module_& module) {
  module.def("_default_generator",
             [](c10::DeviceIndex device) -> at::Generator { return default_generator(device); });
}

}  // namespace loom::python
