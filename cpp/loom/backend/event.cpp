// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/event.h"

#include "loom/device/event.h"

namespace loom {

Event::Event(bool enable_timing)
    : event_(std::make_unique<QueueEvent>(enable_timing ? EventTiming::kEnabled
                                                        : EventTiming::kDisabled)) {}
Event::~Event() = default;
Event::Event(Event&& other) noexcept = default;
Event& Event::operator=(Event&& other) noexcept = default;

void Event::record() { event_->record(current_queue()); }

void Event::record(const Stream& stream) { event_->record(stream.queue()); }

void Event::block() const { event_->block(current_queue()); }

void Event::block(const Stream& stream) const { event_->block(stream.queue()); }

bool Event::query() const { return event_->query(); }

void Event::synchronize() const { event_->synchronize(); }

double Event::elapsed_time(const Event& end) const {
  return static_cast<double>(event_->elapsed_ns(*end.event_)) * 1e-6;
}

bool Event::recorded() const { return event_->recorded(); }

c10::DeviceIndex Event::device_index() const {
  return static_cast<c10::DeviceIndex>(event_->device());
}

}  // namespace loom
