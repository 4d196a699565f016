// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/device_output_scope.h"

#include "loom/backend/allocator.h"
#include "loom/backend/stream.h"
#include "loom/device/address.h"
#include "loom/device/queue.h"

#include <c10/core/CPUAllocator.h>

#include <utility>

namespace loom::ops {
namespace {

thread_local Queue* t_queue = nullptr;
thread_local PlacedAllocation* t_placed = nullptr;

// The context of memory from a scope is its host address, as raw_allocate() wants it.
void free_device_memory(void* host) {
  static const c10::DeleterFnPtr deleter = c10::GetAllocator(c10::kPrivateUse1)->raw_deleter();
  deleter(device_address(host));
}

c10::Allocator* g_base = nullptr;  // set once, before the scoped allocator is installed

// A temporary of the result's size may have been the first to ask: its memory is free again.
void give_back_memory(void* host) {
  if (t_placed != nullptr) (void)t_placed->give_back(host);
}

// For raw_allocate(), which some libraries use and whose memory may come from a scope or not.
void free_any_memory(void* host) {
  if (t_placed != nullptr && t_placed->give_back(host)) return;
  if (device_of_address(device_address(host)) >= 0) {
    free_device_memory(host);
  } else {
    g_base->raw_deleter()(host);
  }
}

// A fresh block may be one that another thread has just dropped, with its work on it still queued.
// Errors of that work are not taken: they belong to that thread's next synchronisation.
void wait_to_write(Queue& queue) { queue.timeline().wait(queue.seal()); }

class ScopedCpuAllocator final : public c10::Allocator {
 public:
  explicit ScopedCpuAllocator(c10::Allocator* base) : base_(base) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (t_placed != nullptr) [[unlikely]] {
      if (void* memory = t_placed->take(bytes))
        return {memory, memory, &give_back_memory, c10::kCPU};
    }
    if (t_queue == nullptr || bytes == 0) return base_->allocate(bytes);
    c10::DataPtr device = loom::allocate(bytes, *t_queue);
    wait_to_write(*t_queue);
    void* host = host_address(device.get());
    (void)device.release_context();
    return {host, host, &free_device_memory, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return base_->raw_deleter() == nullptr ? nullptr : &free_any_memory;
  }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    base_->copy_data(destination, source, bytes);
  }

 private:
  c10::Allocator* const base_;
};

// Leaked: CPU storages hold a pointer to it until the very end of the process.
ScopedCpuAllocator* install() {
  g_base = c10::GetCPUAllocator();
  auto* allocator = new ScopedCpuAllocator(g_base);
  c10::SetCPUAllocator(allocator);
  return allocator;
}

ScopedCpuAllocator* const g_allocator = install();

}  // namespace

c10::Allocator* scoped_cpu_allocator() noexcept { return g_allocator; }

void wait_for_host_write(c10::Device device) { wait_to_write(current_queue(device.index())); }

DeviceOutputScope::DeviceOutputScope(Queue& queue) noexcept
    : previous_(std::exchange(t_queue, &queue)) {}

DeviceOutputScope::~DeviceOutputScope() { t_queue = previous_; }

PlacedAllocation::PlacedAllocation(void* memory, std::size_t bytes, int skipped) noexcept
    : previous_(std::exchange(t_placed, this)), memory_(memory), bytes_(bytes), skipped_(skipped) {}

PlacedAllocation::~PlacedAllocation() { t_placed = previous_; }

void* PlacedAllocation::take(std::size_t bytes) noexcept {
  if (bytes != bytes_ || bytes == 0 || taken_) return nullptr;
  if (skipped_-- > 0) return nullptr;
  taken_ = true;
  return memory_;
}

bool PlacedAllocation::give_back(const void* memory) noexcept {
  if (memory != memory_) return previous_ != nullptr && previous_->give_back(memory);
  taken_ = false;
  return true;
}

std::optional<c10::DataPtr> take_device_memory(c10::StorageImpl& storage) {
  if (storage.data_ptr().get_deleter() != &free_device_memory) return std::nullopt;
  c10::DataPtr host = storage.set_data_ptr(c10::DataPtr(nullptr, c10::kCPU));
  void* device = device_address(host.release_context());
  // The device pointer is the context of its own deleter, as the device allocator makes it.
  return c10::DataPtr(
      device, device, c10::GetAllocator(c10::kPrivateUse1)->raw_deleter(),
      c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_of_address(device))));
}

}  // namespace loom::ops
