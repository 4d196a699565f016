// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/allocator.h"

#include "loom/backend/allocator_config.h"
#include "loom/backend/cuda_name.h"
#include "loom/backend/device_state.h"
#include "loom/backend/selection.h"
#include "loom/backend/stream.h"
#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/device/failed_memory.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/fusion/freed.h"
#include "loom/memory/device_allocator.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace loom {
namespace {

using c10::CachingAllocator::format_size;

// The allocators that have been given the process's settings, which the first use does.
std::array<std::atomic<CachingAllocator*>, detail::kMaxDevices> g_allocators;
// Held while settings are read and handed out: an allocator that is made meanwhile gets what is
// read after it, so that none is left with settings that were changed in between.
Mutex g_allocators_mutex;

CachingAllocator& make_allocator(c10::DeviceIndex index) {
  CachingAllocator& made = device_allocator(index);
  // c10 reads the environment at the first question and then calls apply_allocator_config(), which
  // takes the lock: not with the lock held.
  (void)read_allocator_config();
  MutexLock lock(g_allocators_mutex);
  auto& slot = detail::slot_of(g_allocators, index);
  // relaxed: allocators are stored under the lock that is held here
  if (slot.load(std::memory_order_relaxed) == nullptr) {
    made.set_config(read_allocator_config());
    slot.store(&made, std::memory_order_release);  // release: readers see it configured
  }
  return made;
}

/// The allocator of a device, or null while it has none.
CachingAllocator* find_allocator(int index) noexcept {
  // acquire: pairs with the release in make_allocator
  return detail::slot_of(g_allocators, index).load(std::memory_order_acquire);
}

/// Requires: `index` is valid.
CachingAllocator& allocator_of(c10::DeviceIndex index) {
  CachingAllocator* made = find_allocator(index);
  return made != nullptr ? *made : make_allocator(index);
}

CachingAllocator* allocator_of_address(const void* address) noexcept {
  const int index = device_of_address(address);
  return index < 0 ? nullptr : find_allocator(index);
}

template <class Function>
void for_each_allocator(Function&& function) {
  for (int index = 0; index < detail::kMaxDevices; ++index) {
    if (CachingAllocator* made = find_allocator(index)) function(*made);
  }
}

std::size_t current_bytes(const MemoryStatArray& stat) {
  return static_cast<std::size_t>(stat[0].current);
}

void report_usage(CachingAllocator& memory, void* address, std::int64_t bytes, c10::Device device) {
  const MemoryStats stats = memory.stats();
  c10::reportMemoryUsageToProfiler(address, bytes, current_bytes(stats.allocated_bytes),
                                   current_bytes(stats.reserved_bytes), device);
}

void report_free(CachingAllocator& memory, void* address) {
  if (const auto block = memory.find(address)) {
    report_usage(memory, address, -static_cast<std::int64_t>(block->size),
                 to_c10(static_cast<c10::DeviceIndex>(device_of_address(address))));
  }
}

void note_freed_to_failures(CachingAllocator& memory, void* address) noexcept {
  try {
    const auto block = memory.find(address);
    if (block) FailedMemory::note_freed(block->address, block->size, *block->queue);
  } catch (const std::bad_alloc&) {
    // The memory counts as failed until it is allocated or written again.
  }
}

void delete_device_memory(void* address) noexcept {
  CachingAllocator* memory = allocator_of_address(address);
  // A forked child has no use for the memory, and may have inherited the lock as taken.
  if (memory == nullptr || in_bad_fork()) return;
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    try {
      report_free(*memory, address);
    } catch (const std::exception& error) {
      // A profiler that cannot take the record must not keep the memory from being freed.
      std::fprintf(stderr, "loom: the profiler missed a free: %s\n", error.what());
    }
  }
  if (FailedMemory::any()) [[unlikely]] {
    note_freed_to_failures(*memory, address);
  }
  fusion::note_freed(address);
  memory->free(address);
}

/// "weights (8.00 MiB), ...": the largest of the allocations that the user has named, or nothing.
std::string describe_named(CachingAllocator& memory) {
  constexpr std::size_t kMost = 5;
  std::vector<BlockSnapshot> named;
  for (SegmentSnapshot& segment : memory.snapshot()) {
    for (BlockSnapshot& block : segment.blocks) {
      if (block.allocated && !block.name.empty()) named.push_back(std::move(block));
    }
  }
  if (named.empty()) return {};
  std::sort(named.begin(), named.end(), [](const BlockSnapshot& a, const BlockSnapshot& b) {
    return a.size != b.size ? a.size > b.size : a.name < b.name;
  });
  std::string text = " The largest named allocations: ";
  for (std::size_t i = 0; i < std::min(kMost, named.size()); ++i) {
    text += (i == 0 ? "" : ", ") + named[i].name + " (" + format_size(named[i].size) + ")";
  }
  return text + ".";
}

[[noreturn]] void throw_out_of_memory(CachingAllocator& memory, std::size_t bytes,
                                      c10::DeviceIndex index) {
  const MemoryStats stats = memory.stats();
  const auto [free, total] = memory.memory_info();
  const std::size_t allocated = current_bytes(stats.allocated_bytes);
  const std::size_t reserved = current_bytes(stats.reserved_bytes);
  c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(bytes), allocated, reserved,
                                   to_c10(index));
  const double fraction = memory.memory_fraction();
  const std::string allowed =
      fraction < 1.0
          ? format_size(static_cast<std::uint64_t>(static_cast<double>(total) * fraction)) +
                " allowed by the memory fraction; "
          : std::string();
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, cuda_name::in_messages(), " out of memory. Tried to allocate ",
      format_size(bytes), ". ", to_c10(index), " has a total capacity of ", format_size(total),
      " of which ", format_size(free), " is free. ", allowed, "Of the allocated memory ",
      format_size(allocated), " is allocated by PyTorch, and ",
      format_size(reserved - std::min(allocated, reserved)),
      " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large, try "
      "torch.accelerator.empty_cache() or PYTORCH_ALLOC_CONF=max_split_size_mb:128. The capacity "
      "is set "
      "by LOOM_MEMORY_LIMIT, e.g. LOOM_MEMORY_LIMIT=8G.",
      describe_named(memory));
}

}  // namespace

CachingAllocator& caching_allocator(c10::DeviceIndex index) {
  return allocator_of(resolve_device(index, "caching_allocator"));
}

c10::DataPtr allocate(std::size_t bytes, Queue& queue) {
  const auto index = static_cast<c10::DeviceIndex>(queue.id().device);
  if (bytes == 0) return c10::DataPtr(nullptr, to_c10(index));
  if (in_bad_fork()) [[unlikely]]
    check_not_forked();
  CachingAllocator& memory = allocator_of(index);
  void* address = memory.allocate(bytes, queue);
  if (address == nullptr) [[unlikely]]
    throw_out_of_memory(memory, bytes, index);
  c10::DataPtr owner(address, address, &delete_device_memory, to_c10(index));
  if (FailedMemory::any()) [[unlikely]]
    FailedMemory::note_allocated(address, bytes, queue);
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    const auto block = memory.find(address);
    report_usage(memory, address, static_cast<std::int64_t>(block ? block->size : bytes),
                 to_c10(index));
  }
  return owner;
}

void record_queue(const c10::DataPtr& ptr, Queue& queue) {
  CachingAllocator* memory = allocator_of_address(ptr.get());
  if (memory == nullptr) return;
  if (ptr.get_deleter() == &delete_device_memory) [[likely]] {
    memory->record_queue(ptr.get_context(), queue);
  } else if (const auto block = memory->find(ptr.get()); block && block->allocated) {
    memory->record_queue(block->address, queue);  // wrapped, or a part of a block
  }
}

LoomAllocator& allocator() {
  static LoomAllocator* const instance = new LoomAllocator;  // leaked: used until the process ends
  return *instance;
}

c10::DataPtr LoomAllocator::allocate(std::size_t bytes) {
  return loom::allocate(bytes, current_queue());
}

bool is_allocated(const void* address) {
  const CachingAllocator* memory = allocator_of_address(address);
  if (memory == nullptr) return true;
  const auto block = memory->find(address);
  return block && block->allocated;
}

const void* allocation_of(const c10::DataPtr& ptr) noexcept {
  return ptr.get_deleter() == &delete_device_memory ? ptr.get_context() : nullptr;
}

c10::DeleterFnPtr LoomAllocator::raw_deleter() const { return &delete_device_memory; }

void LoomAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  if (count == 0) return;
  Queue& queue = current_queue();
  if (CachingAllocator* memory = allocator_of_address(src)) {
    if (const auto block = memory->find(src)) memory->record_queue(block->address, queue);
  }
  copy_device_bytes(dest, src, count, queue);
}

bool LoomAllocator::initialized() {
  bool any = false;
  for_each_allocator([&](CachingAllocator&) { any = true; });
  return any;
}

void LoomAllocator::emptyCache(c10::MempoolId_t mempool_id) {
  for_each_allocator([&](CachingAllocator& memory) { memory.empty_cache(mempool_id); });
}

void LoomAllocator::recordStream(const c10::DataPtr& ptr, c10::Stream stream) {
  record_queue(ptr, queue_of(stream));
}

void LoomAllocator::resetAccumulatedStats(c10::DeviceIndex device) {
  caching_allocator(device).reset_accumulated_stats();
}

void LoomAllocator::resetPeakStats(c10::DeviceIndex device) {
  caching_allocator(device).reset_peak_stats();
}

std::pair<std::size_t, std::size_t> LoomAllocator::getMemoryInfo(c10::DeviceIndex device) {
  return caching_allocator(device).memory_info();
}

void apply_allocator_config() {
  MutexLock lock(g_allocators_mutex);
  for_each_allocator([](CachingAllocator& memory) { memory.set_config(read_allocator_config()); });
}

}  // namespace loom
