// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/device.h"

#include "loom/base/check.h"
#include "loom/base/mutex.h"
#include "loom/base/options.h"
#include "loom/device/thread.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace loom {
namespace {

constexpr int kPriorities = 1 - Queue::kHighestPriority;
constexpr int kPoolQueues = kPriorities * Device::kQueuesPerPriority;

const std::vector<DeviceProperties>& all_properties() {
  static const std::vector<DeviceProperties> all = [] {
    const Options& from = options();
    return enumerate_devices(from.devices, from.threads, from.memory_limit);
  }();
  return all;
}

using Devices = std::vector<std::unique_ptr<Device>>;

// Leaked: static destructors free tensors.
const Devices& all_devices() {
  static const Devices* const all = [] {
    auto devices = std::make_unique<Devices>();
    for (const DeviceProperties& properties : all_properties()) {
      devices->push_back(std::make_unique<Device>(static_cast<int>(devices->size()), properties));
    }
    note_device_used();
    return devices.release();
  }();
  return *all;
}

}  // namespace

struct Device::State {
  State(int index_, DeviceProperties properties_)
      : index(index_),
        properties(std::move(properties_)),
        arena(index, properties.total_memory),
        cores(properties.core_count, properties.cpus, index),
        default_queue(QueueId{index, 0, 0}, cores) {}

  const int index;
  const DeviceProperties properties;
  Arena arena;
  Cores cores;
  Queue default_queue;
  // Made when asked for. Slot p * kQueuesPerPriority + i is the queue of priority -p and index
  // i + 1. Acquire / release: who sees the pointer sees the queue.
  std::array<std::atomic<Queue*>, kPoolQueues> pool{};
  // Round robin: only the number matters, relaxed.
  std::array<std::atomic<std::uint32_t>, kPriorities> next{};
  Mutex pool_mutex;
  std::vector<std::unique_ptr<Queue>> owned LOOM_GUARDED_BY(pool_mutex);

  std::vector<std::unique_ptr<Queue>> lent LOOM_GUARDED_BY(pool_mutex);  // never fewer
  std::vector<Queue*> taken_back LOOM_GUARDED_BY(pool_mutex);  // has room for all that are lent
  // The first error of those that nobody has been told.
  FailurePtr failure_taken_back LOOM_GUARDED_BY(pool_mutex);
  // How many there are, so that who visits all queues of a device without any takes no lock.
  // Acquire / release: who sees the number finds so many.
  std::atomic<std::size_t> lent_count{0};

  template <class Visit>
  void for_each_queue(Visit&& visit) {
    visit(default_queue);
    for (const std::atomic<Queue*>& entry : pool) {
      if (Queue* const queue = entry.load(std::memory_order_acquire)) visit(*queue);
    }
    const std::size_t count = lent_count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      Queue* queue = nullptr;
      {
        MutexLock lock(pool_mutex);
        queue = lent[i].get();
      }
      visit(*queue);  // without the lock: it may wait
    }
  }
};

Device::Device(int index, DeviceProperties properties)
    : state_(std::make_unique<State>(index, std::move(properties))) {}

Device::~Device() = default;

int Device::index() const noexcept { return state_->index; }

const DeviceProperties& Device::properties() const noexcept { return state_->properties; }

Arena& Device::arena() noexcept { return state_->arena; }

Cores& Device::cores() noexcept { return state_->cores; }

Queue& Device::default_queue() noexcept { return state_->default_queue; }

Queue& Device::pool_queue(int priority, int index) {
  LOOM_CHECK(priority >= Queue::kHighestPriority && priority <= 0,
             "pool_queue(): expected a priority from ", Queue::kHighestPriority, " to 0, got ",
             priority);
  LOOM_CHECK(index >= 0 && index < kQueuesPerPriority, "pool_queue(): expected an index in [0, ",
             kQueuesPerPriority, "), got ", index);
  const int slot = -priority * kQueuesPerPriority + index;
  std::atomic<Queue*>& entry = state_->pool[static_cast<std::size_t>(slot)];
  if (Queue* const queue = entry.load(std::memory_order_acquire)) return *queue;
  MutexLock lock(state_->pool_mutex);
  if (Queue* const queue = entry.load(std::memory_order_relaxed)) return *queue;
  state_->owned.push_back(
      std::make_unique<Queue>(QueueId{state_->index, priority, index + 1}, state_->cores));
  entry.store(state_->owned.back().get(), std::memory_order_release);
  return *state_->owned.back();
}

Queue& Device::next_pool_queue(int priority) {
  priority = std::clamp(priority, Queue::kHighestPriority, 0);
  const std::uint32_t ticket =
      state_->next[static_cast<std::size_t>(-priority)].fetch_add(1, std::memory_order_relaxed);
  return pool_queue(priority, static_cast<int>(ticket % kQueuesPerPriority));
}

Queue& Device::lend_queue() {
  MutexLock lock(state_->pool_mutex);
  if (!state_->taken_back.empty()) {
    Queue* const queue = state_->taken_back.back();
    state_->taken_back.pop_back();
    return *queue;
  }
  const auto index = static_cast<int>(state_->lent.size());
  state_->taken_back.reserve(state_->lent.size() + 1);
  state_->lent.push_back(
      std::make_unique<Queue>(QueueId{state_->index, 0, kFirstLentIndex + index}, state_->cores));
  state_->lent_count.store(state_->lent.size(), std::memory_order_release);
  return *state_->lent.back();
}

void Device::take_back(Queue& queue) {
  FailurePtr failure = queue.take_failure();
  MutexLock lock(state_->pool_mutex);
  FailurePtr& kept = state_->failure_taken_back;
  if (failure != nullptr && (kept == nullptr || kept->seen())) std::swap(kept, failure);
  state_->taken_back.push_back(&queue);
}

Queue& Device::lent_queue(int index) {
  MutexLock lock(state_->pool_mutex);
  LOOM_CHECK(index >= 0 && static_cast<std::size_t>(index) < state_->lent.size(),
             "lent_queue(): expected an index in [0, ", state_->lent.size(), "), got ", index);
  return *state_->lent[static_cast<std::size_t>(index)];
}

int Device::lent_queues() const noexcept {
  return static_cast<int>(state_->lent_count.load(std::memory_order_acquire));
}

void Device::synchronize() {
  std::exception_ptr first;
  state_->for_each_queue([&](Queue& queue) {
    const std::shared_ptr<CommandGraph> graph = queue.captured() ? queue.graph() : nullptr;
    const bool captured_elsewhere = graph != nullptr && !graph->begun_by_this_thread();
    // The errors of further queues are left to later synchronisations.
    const std::uint64_t position = queue.seal();
    if (first != nullptr || captured_elsewhere) {
      queue.timeline().wait(position, Timeline::Signals::kHandled);
      return;
    }
    try {
      queue.synchronize(position);
    } catch (...) {
      // A signal ends the wait for all of them.
      if (!queue.captured() && !queue.timeline().reached(position)) throw;
      first = std::current_exception();
    }
  });
  if (first != nullptr) std::rethrow_exception(std::move(first));
  if (lent_queues() == 0) return;
  FailurePtr failure;
  {
    MutexLock lock(state_->pool_mutex);
    failure = std::exchange(state_->failure_taken_back, nullptr);
  }
  if (failure != nullptr && failure->note_seen()) failure->raise();
}

void Device::drain() {
  state_->for_each_queue([](Queue& queue) { queue.timeline().wait(queue.seal()); });
}

bool Device::idle() const noexcept {
  bool idle = true;
  state_->for_each_queue([&](const Queue& queue) { idle = idle && queue.idle(); });
  return idle;
}

int device_count() { return static_cast<int>(all_properties().size()); }

Device& device(int index) {
  check_not_forked();
  const Devices& all = all_devices();
  LOOM_CHECK(index >= 0 && index < static_cast<int>(all.size()),
             "device(): expected a device index in [0, ", all.size(), "), got ", index);
  return *all[static_cast<std::size_t>(index)];
}

bool device_in_use() noexcept { return device_was_used(); }

}  // namespace loom
