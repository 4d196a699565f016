// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/event.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/device/queue.h"

#include <utility>

namespace loom {

QueueEvent::QueueEvent(EventTiming timing) : timing_(timing) {}

QueueEvent::~QueueEvent() = default;

void QueueEvent::Mark::check_not_captured(const char* api) const {
  LOOM_CHECK(capture == 0, api,
             ": expected an event that was recorded in a stream, got one that was ",
             "recorded while its stream was captured and marks a place in the graph");
}

bool QueueEvent::Mark::complete() const {
  return queue == nullptr || queue->timeline().reached(position);
}

QueueEvent::Mark QueueEvent::mark() const {
  MutexLock lock(mutex_);
  return mark_;
}

void QueueEvent::record(Queue& queue) {
  Mark mark{&queue, 0, nullptr, queue.capture_id()};
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
  if (mark.queue == nullptr) return;
  if (mark.capture == 0) return queue.wait_for(mark.queue->timeline(), mark.position);
  const std::shared_ptr<CommandGraph> graph = mark.queue->graph();
  LOOM_CHECK(graph != nullptr && graph->id() == mark.capture,
             "Event.wait: expected an event of a stream or of a capture that is under way, got one "
             "that marks a place in a graph whose capture has ended");
  queue.seal();  // what it records from here on comes after the event
  graph->join(queue);
}

bool QueueEvent::query() const {
  const Mark mark = this->mark();
  mark.check_not_captured("Event.query");
  return mark.complete();
}

void QueueEvent::synchronize() const {
  const Mark mark = this->mark();
  if (mark.queue == nullptr) return;
  mark.check_not_captured("Event.synchronize");
  mark.queue->synchronize(mark.position);
}

std::int64_t QueueEvent::completion_ns(const char* role) const {
  LOOM_CHECK(timing_ == EventTiming::kEnabled, "elapsed_time(): expected the ", role,
             " event to be created with timing enabled, got one without timing");
  const Mark mark = this->mark();
  LOOM_CHECK(mark.queue != nullptr, "elapsed_time(): expected the ", role,
             " event to be recorded, got one that was never recorded");
  mark.check_not_captured("elapsed_time");
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
