// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/device/queue.h"

#include <c10/core/Stream.h>

#include "bindings.h"
#include <chrono>
#include <future>
#include <utility>

namespace loom::python {
namespace {

/// Keeps what is queued behind it from running until it is released or its time is up: what a
/// test says of work that waits then does not hang on who was faster. Any thread may release it.
class Hold {
 public:
  Hold(c10::DeviceIndex device, double seconds) {
    current_stream(device).queue().submit(
        "hold", [end = released_.get_future().share(),
                 limit = std::chrono::duration<double>(seconds)] { end.wait_for(limit); });
  }
  ~Hold() { release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  /// Thread: with the GIL, which guards `done_`.
  void release() {
    if (!std::exchange(done_, true)) released_.set_value();
  }

 private:
  std::promise<void> released_;
  bool done_ = false;
};

}  // namespace

void bind_stream(pybind11::module_& module) {
  module.def("_default_stream",
             [](c10::DeviceIndex device) { return default_stream(device).unwrap(); });
  module.def("_stream_priority", [](c10::StreamId id, c10::DeviceIndex device) {
    return Stream(c10::Stream(c10::Stream::UNSAFE, to_c10(device), id)).priority();
  });
  module.def("_stream_priority_range", &Stream::priority_range);
  pybind11::class_<Hold>(module, "_Hold")
      .def(pybind11::init<c10::DeviceIndex, double>())
      .def("release", &Hold::release);
}

}  // namespace loom::python
