// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/event.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/device/queue.h"

#include <utility>

namespace loom {

QueueEvent::QueueEvent(EventTiming timing) : timing_(timing) {}

QueueEvent::~QueueEvent() = default;

bool QueueEvent::Mark::complete() const {
  return queue == nullptr || queue->timeline().reached(position);
}

QueueEvent::Mark QueueEvent::mark() const {
  MutexLock lock(mutex_);
  return mark_;
}

void QueueEvent::record(Queue& queue) {
  Mark mark{&queue, 0, nullptr};
  if (timing_ == EventTiming::kEnabled) {
    mark.time = std::make_shared<Timestamp>(0);
    mark.position = queue.submit(
        "record_event", [time = mark.time] { time->store(now_ns(), std::memory_order_relaxed); });
  } else {
    mark.position = queue.seal();
  }
  MutexLock lock(mutex_);
  mark_ = std::move(mark);
}

void QueueEvent::block(Queue& queue) const {
  const Mark mark = this->mark();
  if (mark.queue != nullptr) queue.wait_for(mark.queue->timeline(), mark.position);
}

bool QueueEvent::query() const {
  MutexLock lock(mutex_);
  return mark_.complete();
}

void QueueEvent::synchronize() const {
  const Mark mark = this->mark();
  if (mark.queue != nullptr) mark.queue->synchronize(mark.position);
}

std::int64_t QueueEvent::completion_ns(const char* role) const {
  LOOM_CHECK(timing_ == EventTiming::kEnabled, "elapsed_time(): expected the ", role,
             " event to be created with timing enabled, got one without timing");
  const Mark mark = this->mark();
  LOOM_CHECK(mark.queue != nullptr, "elapsed_time(): expected the ", role,
             " event to be recorded, got one that was never recorded");
  LOOM_CHECK(mark.complete(), "elapsed_time(): expected the ", role,
             " event to be complete, got one whose work has not finished; synchronize it first");
  return mark.time->load(std::memory_order_relaxed);
}

std::int64_t QueueEvent::elapsed_ns(const QueueEvent& end) const {
  const std::int64_t start_ns = completion_ns("start");
  return end.completion_ns("end") - start_ns;
}

bool QueueEvent::recorded() const {
  MutexLock lock(mutex_);
  return mark_.queue != nullptr;
}

int QueueEvent::device() const {
  MutexLock lock(mutex_);
  return mark_.queue == nullptr ? -1 : mark_.queue->id().device;
}

}  // namespace loom
