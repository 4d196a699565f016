// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"

#include <c10/core/Stream.h>

#include "bindings.h"

namespace loom::python {

void bind_stream(pybind11::module_& module) {
  module.def("_default_stream",
             [](c10::DeviceIndex device) { return default_stream(device).unwrap(); });
  module.def("_stream_priority", [](c10::StreamId id, c10::DeviceIndex device) {
    return Stream(c10::Stream(c10::Stream::UNSAFE, to_c10(device), id)).priority();
  });
  module.def("_stream_priority_range", &Stream::priority_range);
}

}  // namespace loom::python
