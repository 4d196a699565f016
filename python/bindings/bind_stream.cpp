// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/base/futex.h"
#include "loom/device/queue.h"

#include <c10/core/Stream.h>

#include "bindings.h"
#include <atomic>
#include <cstdint>
#include <memory>

namespace loom::python {
namespace {

/// Keeps what is queued behind it from running until it is released or its time is up: what a
/// test says of work that waits then does not hang on who was faster. Any thread may release it.
class Hold {
 public:
  Hold(c10::DeviceIndex device, double seconds) {
    current_stream(device).queue().submit("hold", [released = released_, seconds] {
      const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
      // Relaxed: nothing is read that was written before the release.
      while (released->load(std::memory_order_relaxed) == 0 && now_ns() < end) {
        futex_wait_for(*released, 0, end - now_ns());
      }
    });
  }
  ~Hold() { release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void release() noexcept {
    released_->store(1, std::memory_order_relaxed);
    futex_wake(*released_);
  }

 private:
  /// 0 until it is released; the command keeps it.
  const std::shared_ptr<std::atomic<std::uint32_t>> released_ =
      std::make_shared<std::atomic<std::uint32_t>>(0);
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
