// SPDX-License-Identifier: BSD-3-Clause
#include "loom/profiler/legacy_stubs.h"

#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/device/device.h"
#include "loom/device/event.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <functional>
#include <memory>

namespace loom::profiler {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

const QueueEvent& event_of(const ProfilerVoidEventStub* stub) {
  return *static_cast<const QueueEvent*>(stub->get());
}

class LegacyStubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              std::int64_t* cpu_ns) const override {
    Queue& queue = current_queue();
    if (device != nullptr) *device = static_cast<c10::DeviceIndex>(queue.id().device);
    auto recorded = std::make_shared<QueueEvent>(EventTiming::kEnabled);
    recorded->record(queue);
    *event = std::move(recorded);
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
  }

  /// Microseconds. Waits for both.
  float elapsed(const ProfilerVoidEventStub* event,
                const ProfilerVoidEventStub* event2) const override {
    event_of(event).synchronize();
    event_of(event2).synchronize();
    return static_cast<float>(event_of(event).elapsed_ns(event_of(event2))) * 1e-3F;
  }

  // Marks and ranges are for a vendor's own tracer; loom has none beside this profiler.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

  bool enabled() const override { return true; }

  void onEachDevice(std::function<void(int)> op) const override {
    for (int index = 0; index < device_count(); ++index) {
      const c10::DeviceGuard guard(to_c10(static_cast<c10::DeviceIndex>(index)));
      op(index);
    }
  }

  void synchronize() const override { device(current_device()).synchronize(); }
};

}  // namespace

void register_legacy_stubs() {
  static auto* const stubs = new LegacyStubs;  // leaked: PyTorch uses it until the process ends
  torch::profiler::impl::registerPrivateUse1Methods(stubs);
}

}  // namespace loom::profiler
