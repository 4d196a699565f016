// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/stream.h"

#include "loom/backend/backward_thread.h"
#include "loom/backend/device_state.h"
#include "loom/backend/selection.h"
#include "loom/device/device.h"

#include <c10/util/Exception.h>

namespace loom {
namespace {

// Stream ids: 0 is the default stream, then one block of kPool ids a priority, from normal to high,
// then the queues that the device lends.
constexpr int kPool = Device::kQueuesPerPriority;
constexpr int kPriorities = 1 - Queue::kHighestPriority;
constexpr int kStreams = 1 + kPriorities * kPool;

/// Requires: `id` is valid.
Queue& queue_of_id(Device& owner, c10::StreamId id) {
  if (id == 0) return owner.default_queue();
  if (id >= kStreams) return owner.lent_queue(static_cast<int>(id) - kStreams);
  const int slot = static_cast<int>(id) - 1;
  return owner.pool_queue(-(slot / kPool), slot % kPool);
}

c10::StreamId id_of_queue(const QueueId& queue) {
  if (queue.index == 0) return 0;
  if (queue.index >= Device::kFirstLentIndex)
    return kStreams + queue.index - Device::kFirstLentIndex;
  return -queue.priority * kPool + queue.index;
}

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, to_c10(device), id);
}

/// The current queue of `device`, for a thread that has not used it: fills the thread's cache.
Queue& first_use(c10::DeviceIndex index) {
  choose_backward_thread();
  auto& queue = detail::slot_of(detail::t_queues, index);
  if (queue == nullptr) queue = &device(index).default_queue();
  if (index == detail::t_selection.device) detail::t_selection.queue = queue;
  return *queue;
}

Queue& current_queue_slow(c10::DeviceIndex index) {
  return first_use(resolve_device(index, "current_stream"));
}

}  // namespace

Stream::Stream(c10::Stream stream) : stream_(stream), queue_(&queue_of(stream)) {}

bool Stream::query() const noexcept { return queue_->idle(); }

void Stream::synchronize() const { queue_->synchronize(); }

int Stream::priority() const noexcept { return queue_->id().priority; }

std::pair<int, int> Stream::priority_range() noexcept { return {0, Queue::kHighestPriority}; }

Queue& queue_of(const c10::Stream& stream) {
  check_device(stream.device(), "stream");
  const c10::StreamId id = stream.id();
  Device& owner = device(stream.device_index());
  TORCH_CHECK(id >= 0 && id < kStreams + owner.lent_queues(),
              "stream: expected the id of a stream ",
              "of loom:", static_cast<int>(stream.device_index()), ", in [0, ", kStreams, "), got ",
              id, "; loom makes its own streams and takes no external ones");
  return queue_of_id(owner, id);
}

Stream stream_of(const Queue& queue) {
  const auto index = static_cast<c10::DeviceIndex>(queue.id().device);
  return Stream(make_stream(index, id_of_queue(queue.id())));
}

Queue& current_queue(c10::DeviceIndex device) {
  const detail::Selection& state = detail::t_selection;
  if (state.queue != nullptr && (device == -1 || device == state.device)) [[likely]] {
    return *state.queue;
  }
  return current_queue_slow(device);
}

Stream current_stream(c10::DeviceIndex device) { return stream_of(current_queue(device)); }

c10::Stream inherited_stream(c10::DeviceIndex device) noexcept {
  if (device < 0 || device >= detail::kMaxDevices) device = detail::t_selection.device;
  const Queue* const queue = detail::slot_of(detail::t_queues, device);
  return make_stream(device, queue == nullptr ? 0 : id_of_queue(queue->id()));
}

Stream default_stream(c10::DeviceIndex device) {
  return Stream(make_stream(resolve_device(device, "default_stream"), 0));
}

Stream stream_from_pool(int priority, c10::DeviceIndex device) {
  device = resolve_device(device, "stream_from_pool");
  return stream_of(loom::device(device).next_pool_queue(priority));
}

Stream stream_from_pool(bool high_priority, c10::DeviceIndex device) {
  return stream_from_pool(high_priority ? Queue::kHighestPriority : 0, device);
}

void set_current_stream(const Stream& stream) noexcept {
  Queue* queue = &stream.queue();
  detail::slot_of(detail::t_queues, stream.device_index()) = queue;
  if (stream.device_index() == detail::t_selection.device) detail::t_selection.queue = queue;
}

StreamGuard::StreamGuard(const Stream& stream)
    : original_device_(current_device()), original_stream_(current_stream(stream.device_index())) {
  set_current_stream(stream);
  set_device_unchecked(stream.device_index());
}

StreamGuard::~StreamGuard() {
  set_current_stream(original_stream_);
  set_device_unchecked(original_device_);
}

}  // namespace loom
