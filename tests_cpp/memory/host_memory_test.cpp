// SPDX-License-Identifier: BSD-3-Clause
// The allocator when the host has no memory for what it notes itself.
#include "loom/memory/pinned_pool.h"

#include "memory/allocator_fixture.h"
#include "support/failing_new.h"
#include <cstdint>
#include <fstream>
#include <new>
#include <vector>

namespace loom {
namespace {

using testing::FailingNew;
using testing::kKiB;
using testing::kMiB;
using testing::t_allocations_left;

class HostMemoryTest : public testing::AllocatorTest {
 protected:
  /// allocate(), in which all allocations of host memory but the first `spared` fail.
  [[nodiscard]] std::byte* alloc_with(int spared, std::size_t bytes) {
    t_allocations_left = spared;
    try {
      std::byte* const address = alloc(bytes);
      t_allocations_left = -1;
      return address;
    } catch (const std::bad_alloc&) {
      t_allocations_left = -1;
      return nullptr;
    }
  }

  /// Fails at one allocation of host memory after the other until the request succeeds.
  int failures_until_success(std::size_t bytes) {
    for (int spared = 0;; ++spared) {
      std::byte* const address = alloc_with(spared, bytes);
      allocator->check_invariants();
      EXPECT_EQ(source.mapped(), reserved()) << "after " << spared << " allocations";
      if (address == nullptr) {
        EXPECT_EQ(allocated(), held_) << "after " << spared << " allocations";
        continue;
      }
      held_ += bytes;
      return spared;
    }
  }

  /// Of the block's segment.
  [[nodiscard]] PoolId pool_of(const std::byte* address) const {
    for (const SegmentSnapshot& segment : allocator->snapshot()) {
      const auto* const begin = static_cast<const std::byte*>(segment.address);
      if (address >= begin && address < begin + segment.total_size) return segment.pool;
    }
    return {0, UINT64_MAX};
  }

  std::size_t held_ = 0;
};

TEST_F(HostMemoryTest, ASegmentThatCannotBeNotedIsGivenBack) {
  for (const std::size_t bytes : {512 * kKiB, 4 * kMiB, 60 * kMiB}) {
    EXPECT_GT(failures_until_success(bytes), 0) << bytes << " bytes";
  }
}

TEST_F(HostMemoryTest, ABlockThatCannotBeSplitStaysFree) {
  std::byte* const whole = alloc(20 * kMiB);
  free(whole);
  EXPECT_GT(failures_until_success(4 * kMiB), 0);
  EXPECT_EQ(source.live_segments(), 1);
}

TEST_F(HostMemoryTest, TheFirstSegmentOfAPrivatePoolIsNoDifferent) {
  const PoolId pool = CachingAllocator::new_pool_id();
  allocator->begin_allocate_to_pool(pool, [](const Queue&) { return true; });
  EXPECT_GT(failures_until_success(4 * kMiB), 0);
  allocator->end_allocate_to_pool(pool);
}

TEST_F(HostMemoryTest, WhatIsFreedIsFreeWhenThereIsMemoryAgain) {
  for (const std::size_t bytes : {512 * kKiB, 4 * kMiB, 60 * kMiB}) {
    SCOPED_TRACE(bytes);
    std::byte* const first = alloc(bytes);
    std::byte* const second = alloc(bytes);
    {
      const FailingNew no_memory(0);
      free(first);
      free(second);
    }
    allocator->check_invariants();
    allocator->empty_cache();
    EXPECT_EQ(active(), 0u);
    EXPECT_EQ(reserved(), 0u);
  }
}

TEST_F(HostMemoryTest, WhatOtherQueuesUseIsFreeAfterThemWhicheverAllocationFails) {
  for (int spared = 0; spared < 8; ++spared) {
    SCOPED_TRACE(spared);
    std::byte* const block = alloc(4 * kMiB);
    allocator->record_queue(block, b);
    testing::Gate held;
    submit_gate(b, held);
    {
      const FailingNew no_memory(spared);
      free(block);
    }
    allocator->check_invariants();
    EXPECT_EQ(active(), 4 * kMiB) << "another queue uses it";
    held.open();
    b.synchronize();
    allocator->empty_cache();
    allocator->empty_cache();  // what is freed by the first one may wait for the queue
    EXPECT_EQ(active(), 0u);
  }
}

TEST_F(HostMemoryTest, ACaptureThatCannotBeginLeavesNothing) {
  const PoolId pool = CachingAllocator::new_pool_id();
  int failures = 0;
  for (bool begun = false; !begun;) {
    try {
      const FailingNew no_memory(failures);
      allocator->begin_allocate_to_pool(pool, [](const Queue&) { return true; });
      begun = true;
    } catch (const std::bad_alloc&) {
      ++failures;
      std::byte* const block = alloc(4 * kMiB);
      EXPECT_EQ(pool_of(block), (PoolId{0, 0})) << "after " << failures;
      free(block);
    }
  }
  EXPECT_GT(failures, 0);
  allocator->end_allocate_to_pool(pool);
  allocator->release_pool(pool);
}

TEST_F(HostMemoryTest, ACaptureEndsWhicheverAllocationFails) {
  for (int spared = 0; spared < 8; ++spared) {
    SCOPED_TRACE(spared);
    const PoolId pool = CachingAllocator::new_pool_id();
    std::byte* const block = alloc(4 * kMiB);
    allocator->record_queue(block, b);
    allocator->begin_allocate_to_pool(pool, [](const Queue&) { return true; });
    free(block);
    EXPECT_EQ(active(), 4 * kMiB) << "a capture is under way";
    {
      const FailingNew no_memory(spared);
      allocator->end_allocate_to_pool(pool);
    }
    std::byte* const next = alloc(kMiB);
    EXPECT_EQ(pool_of(next), (PoolId{0, 0}));
    free(next);
    allocator->release_pool(pool);
    allocator->empty_cache();
    allocator->empty_cache();  // what is freed by the first one may wait for the queue
    EXPECT_EQ(active(), 0u);
  }
}

TEST_F(HostMemoryTest, AHistoryThatFailsKeepsNoBlockFromBeingFreed) {
  std::byte* const block = alloc(4 * kMiB);
  allocator->record_history(10, []() -> std::shared_ptr<void> { throw std::bad_alloc(); });
  free(block);
  allocator->record_history(0, nullptr);
  EXPECT_EQ(active(), 0u);
}

/// Pages of this process's addresses.
std::size_t mapped_pages() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(PinnedHostMemoryTest, AMappingThatCannotBeNotedIsNotMade) {
  constexpr std::size_t kPage = 4096, kBytes = 256 * kMiB;
  unmap_pinned(map_pinned(kPage));  // the registry is there
  const std::size_t before = mapped_pages();
  void* address = nullptr;
  t_allocations_left = 0;
  EXPECT_NO_THROW(address = map_pinned(kBytes));
  t_allocations_left = -1;
  EXPECT_EQ(address, nullptr);
  EXPECT_LT(mapped_pages(), before + kBytes / kPage);
}

TEST_F(HostMemoryTest, AHistoryThatCannotGrowMissesAnEntry) {
  allocator->record_history(SIZE_MAX, nullptr);
  EXPECT_GT(failures_until_success(4 * kMiB), 0);
}

}  // namespace
}  // namespace loom
