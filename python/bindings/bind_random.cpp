// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/generator.h"

#include "bindings.h"

namespace loom::python {

void bind_random(pybind11::module_& module) {
  module.def("_default_generator",
             [](c10::DeviceIndex device) -> at::Generator { return default_generator(device); });
}

}  // namespace loom::python
