// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An allocator over fake segments, two queues and a gate, with the verbs that its tests speak in.

#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/segment_sources.h"
#include <cstddef>
#include <cstdint>
#include <memory>

namespace loom::testing {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Small, large and aggregate index of a MemoryStatArray.
inline constexpr std::size_t kAll = 0, kSmall = 1, kLarge = 2;

class AllocatorTest : public ::testing::Test {
 protected:
  explicit AllocatorTest(std::size_t limit = 256 * kMiB)
      : source(limit), allocator(std::make_unique<CachingAllocator>(0, source)) {}

  ~AllocatorTest() override {
    gate.open();
    if (allocator != nullptr) allocator->check_invariants();
    allocator.reset();
    EXPECT_EQ(source.live_segments(), 0) << "the allocator leaves nothing mapped";
  }

  [[nodiscard]] std::byte* alloc(std::size_t bytes, Queue& queue) {
    return static_cast<std::byte*>(allocator->allocate(bytes, queue));
  }
  [[nodiscard]] std::byte* alloc(std::size_t bytes) { return alloc(bytes, a); }
  void free(void* address) { allocator->free(address); }
  /// Everything submitted to `queue` from now on waits until the gate opens.
  void close_gate(Queue& queue) {
    submit_gate(queue, gate);
    ++gated_;
    gate.wait_for_arrivals(gated_);
  }
  [[nodiscard]] static std::size_t bytes_of(const MemoryStatArray& stat) {
    return static_cast<std::size_t>(stat[kAll].current);
  }
  [[nodiscard]] MemoryStats stats() const { return allocator->stats(); }
  [[nodiscard]] std::size_t allocated() const { return bytes_of(stats().allocated_bytes); }
  [[nodiscard]] std::size_t active() const { return bytes_of(stats().active_bytes); }
  [[nodiscard]] std::size_t reserved() const { return bytes_of(stats().reserved_bytes); }

  // Order matters: the allocator goes first, then the queues it waits for, then what they use.
  FakeSegmentSource source;
  Gate gate;
  Cores cores{1};
  Queue a{QueueId{0, 0, 0}, cores};
  Queue b{QueueId{0, 0, 1}, cores};
  std::unique_ptr<CachingAllocator> allocator;

 private:
  int gated_ = 0;
};

}  // namespace loom::testing
