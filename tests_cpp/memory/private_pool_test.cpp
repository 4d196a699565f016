// SPDX-License-Identifier: BSD-3-Clause
// Private pools: what a graph capture allocates stays apart, and mapped, as long as the graph
// lives.
#include "loom/base/check.h"

#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"

namespace loom::testing {
namespace {

class PrivatePoolTest : public AllocatorTest {
 protected:
  void begin(PoolId id) {
    allocator->begin_allocate_to_pool(id, [this](const Queue& queue) { return &queue == &a; });
  }
  void end(PoolId id) { allocator->end_allocate_to_pool(id); }

  const PoolId pool = CachingAllocator::new_pool_id();
};

TEST_F(PrivatePoolTest, IdsAreUniqueAndNotTheDefaultPool) {
  const PoolId other = CachingAllocator::new_pool_id();
  EXPECT_NE(pool, other);
  EXPECT_NE(pool, (PoolId{0, 0}));
}

TEST_F(PrivatePoolTest, CaptureDoesNotUseTheDefaultPoolsBlocks) {
  std::byte* outside = alloc(kKiB, a);
  free(outside);
  begin(pool);
  std::byte* inside = alloc(kKiB, a);
  end(pool);
  EXPECT_NE(inside, outside);
  EXPECT_EQ(alloc(kKiB, a), outside) << "after the end the default pool is back";
  free(inside);
  EXPECT_NE(alloc(kKiB, a), inside) << "what the capture freed stays in its pool";
}

TEST_F(PrivatePoolTest, OtherQueuesAreNotAffected) {
  std::byte* outside = alloc(kKiB, b);
  free(outside);
  begin(pool);
  EXPECT_EQ(alloc(kKiB, b), outside);
  end(pool);
}

TEST_F(PrivatePoolTest, MemoryIsReusedWithinAndAcrossCapturesOfThePool) {
  begin(pool);
  std::byte* block = alloc(kKiB, a);
  free(block);
  EXPECT_EQ(alloc(kKiB, a), block);
  free(block);
  end(pool);
  begin(pool);
  EXPECT_EQ(alloc(kKiB, a), block);
  end(pool);
}

TEST_F(PrivatePoolTest, SegmentsStayMappedUntilThePoolIsReleased) {
  begin(pool);
  free(alloc(kKiB, a));
  end(pool);
  allocator->empty_cache();
  allocator->empty_cache(pool);
  EXPECT_EQ(source.live_segments(), 1) << "a replay would write there";
  allocator->release_pool(pool);
  EXPECT_EQ(source.live_segments(), 1);
  allocator->empty_cache();
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(PrivatePoolTest, EmptyCacheOfAPoolLeavesTheOthersAlone) {
  free(alloc(kKiB, a));
  begin(pool);
  free(alloc(kKiB, a));
  end(pool);
  allocator->release_pool(pool);
  allocator->empty_cache(pool);
  EXPECT_EQ(source.live_segments(), 1);
  EXPECT_EQ(allocator->snapshot()[0].pool, (PoolId{0, 0}));
}

TEST_F(PrivatePoolTest, EveryBeginAddsAReference) {
  for (int i = 0; i < 2; ++i) {
    begin(pool);
    free(alloc(kKiB, a));
    end(pool);
  }
  allocator->release_pool(pool);
  allocator->empty_cache();
  EXPECT_EQ(source.live_segments(), 1);
  allocator->release_pool(pool);
  allocator->empty_cache();
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(PrivatePoolTest, BlocksOutliveTheirPool) {
  begin(pool);
  std::byte* block = alloc(kKiB, a);
  end(pool);
  allocator->release_pool(pool);
  allocator->empty_cache();
  EXPECT_TRUE(allocator->find(block).has_value());
  free(block);
  allocator->empty_cache();
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(PrivatePoolTest, BlocksUsedElsewhereStayApartUntilTheCaptureEnds) {
  begin(pool);
  std::byte* block = alloc(kKiB, a);
  allocator->record_queue(block, b);  // idle, but what is captured for it runs later
  free(block);
  EXPECT_EQ(active(), kKiB);
  EXPECT_NE(alloc(kKiB, a), block);
  end(pool);
  begin(pool);
  EXPECT_EQ(alloc(kKiB, a), block);
  end(pool);
}

TEST_F(PrivatePoolTest, ReservedBytesOfPoolsAreCounted) {
  begin(pool);
  free(alloc(kKiB, a));
  end(pool);
  const auto pools = stats().reserved_bytes_by_private_pools;
  ASSERT_EQ(pools.size(), 1u);
  EXPECT_EQ(pools[0].first, pool);
  EXPECT_EQ(bytes_of(pools[0].second), 2 * kMiB);
  allocator->release_pool(pool);
  allocator->empty_cache();
  EXPECT_EQ(bytes_of(stats().reserved_bytes_by_private_pools[0].second), 0u);
  EXPECT_EQ(stats().reserved_bytes_by_private_pools[0].second[kAll].peak, 2 << 20);
  allocator->reset_accumulated_stats();
  EXPECT_TRUE(stats().reserved_bytes_by_private_pools.empty());
}

TEST_F(PrivatePoolTest, WhatDoesNotMatchIsRefused) {
  const auto any = [](const Queue&) { return true; };
  EXPECT_THROW(allocator->begin_allocate_to_pool({0, 0}, any), Error);
  EXPECT_THROW(allocator->begin_allocate_to_pool(pool, nullptr), Error);
  EXPECT_THROW(allocator->end_allocate_to_pool(pool), Error);
  EXPECT_THROW(allocator->release_pool(pool), Error);
  begin(pool);
  EXPECT_THROW(begin(pool), Error);
  end(pool);
  EXPECT_THROW(end(pool), Error);
  allocator->release_pool(pool);
  EXPECT_THROW(allocator->release_pool(pool), Error);
}

TEST_F(PrivatePoolTest, FilterMayUseTheAllocator) {
  allocator->begin_allocate_to_pool(pool, [this](const Queue&) {
    (void)allocator->stats();  // would deadlock under the lock
    return true;
  });
  EXPECT_NE(alloc(kKiB, a), nullptr);
  end(pool);
}

}  // namespace
}  // namespace loom::testing
