// SPDX-License-Identifier: BSD-3-Clause
// How DDP learns what its forward, backward and communication take on the device: events of the
// current stream, as on cuda.
#include "loom/backend/event.h"
#include "loom/backend/registration.h"
#include "loom/backend/stream.h"

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace loom::distributed {
namespace {

class LoomTimer final : public c10d::Timer {
 public:
  explicit LoomTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    at(event).record(current_stream(device_.index()));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const loom::Event &from = at(start), &to = at(end);
    if (!from.recorded() || !to.recorded()) return std::nullopt;
    to.synchronize();
    const double ms = from.elapsed_time(to);
    // Of an earlier step, if this one had no such event.
    if (ms < 0) return std::nullopt;
    return static_cast<std::int64_t>(ms * 1e6);
  }

 private:
  [[nodiscard]] loom::Event& at(Event event) { return events_[static_cast<std::size_t>(event)]; }

  const c10::Device device_;
  std::array<loom::Event, 5> events_{loom::Event(true), loom::Event(true), loom::Event(true),
                                     loom::Event(true), loom::Event(true)};
};

}  // namespace
}  // namespace loom::distributed

namespace c10d {
[[maybe_unused]] static const bool loom_timer = loom::register_at_load([] {
  C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1,
                           loom::distributed::LoomTimer);
});
}  // namespace c10d
