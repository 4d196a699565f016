// SPDX-License-Identifier: BSD-3-Clause
// What happens when memory is short: limits, retries, garbage collection, oversize blocks.
#include "loom/base/check.h"
#include "loom/device/scratch.h"

#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"
#include <limits>
#include <thread>

namespace loom::testing {
namespace {

class ReclaimTest : public AllocatorTest {
 protected:
  ReclaimTest() : AllocatorTest(100 * kMiB) {}

  void use_max_split(std::size_t bytes) {
    AllocatorConfig config;
    config.max_split_size = bytes;
    allocator->set_config(config);
  }
};

TEST_F(ReclaimTest, NullAtTheLimitAndTheAllocatorWorksOn) {
  std::byte* block = alloc(90 * kMiB);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(alloc(20 * kMiB), nullptr);
  EXPECT_EQ(stats().num_ooms, 1);
  EXPECT_EQ(stats().num_alloc_retries, 1);
  EXPECT_NE(alloc(kKiB), nullptr);
  free(block);
  EXPECT_NE(alloc(60 * kMiB), nullptr);
}

TEST_F(ReclaimTest, HugeRequestsFailWithoutFlushingTheCache) {
  free(alloc(kMiB));
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {kMax, kMax - 511, kMax / 2, kMax / 4, kMax / 4 + 1, 101 * kMiB}) {
    EXPECT_EQ(alloc(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(stats().num_ooms, 6);
  EXPECT_EQ(stats().num_alloc_retries, 0);
  EXPECT_EQ(reserved(), 2 * kMiB);
}

TEST_F(ReclaimTest, CacheIsReturnedWhenASegmentCannotBeMapped) {
  free(alloc(60 * kMiB));
  EXPECT_NE(alloc(70 * kMiB), nullptr);
  EXPECT_EQ(stats().num_alloc_retries, 1);
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_EQ(stats().num_device_free, 1);
}

TEST_F(ReclaimTest, CacheOfOtherQueuesIsReturnedToo) {
  free(alloc(60 * kMiB, b));
  EXPECT_NE(alloc(70 * kMiB, a), nullptr);
}

TEST_F(ReclaimTest, SourceThatRefusesGivesNullAndLosesNothing) {
  std::byte* kept = alloc(kKiB);
  source.fail_after(0);
  EXPECT_EQ(alloc(30 * kMiB), nullptr);
  EXPECT_EQ(stats().num_ooms, 1);
  EXPECT_EQ(allocated(), kKiB);
  allocator->check_invariants();
  source.fail_after(-1);
  EXPECT_NE(alloc(30 * kMiB), nullptr);
  free(kept);
}

TEST_F(ReclaimTest, SmallerSegmentIsTriedBeforeGivingUp) {
  (void)alloc(90 * kMiB);
  EXPECT_NE(alloc(3 * kMiB), nullptr) << "20 MiB are not left, but 4 are";
  EXPECT_EQ(reserved(), 94 * kMiB);
}

TEST_F(ReclaimTest, FractionLimitsWhatIsReserved) {
  allocator->set_memory_fraction(0.5);
  EXPECT_EQ(allocator->memory_fraction(), 0.5);
  EXPECT_EQ(alloc(60 * kMiB), nullptr);
  EXPECT_NE(alloc(40 * kMiB), nullptr);
  allocator->set_memory_fraction(1.0);
  EXPECT_NE(alloc(60 * kMiB), nullptr);
}

TEST_F(ReclaimTest, FractionOutOfRangeIsRefused) {
  for (const double fraction : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(allocator->set_memory_fraction(fraction), Error) << fraction;
  }
}

TEST_F(ReclaimTest, MemoryInfoCountsMappedMemoryAsTaken) {
  free(alloc(30 * kMiB));
  EXPECT_EQ(allocator->memory_info(), std::make_pair(70 * kMiB, 100 * kMiB));
}

TEST_F(ReclaimTest, GarbageCollectionReturnsTheOldestUnusedSegmentsFirst) {
  std::byte* first = alloc(20 * kMiB);
  std::byte* second = alloc(22 * kMiB);
  std::byte* third = alloc(24 * kMiB);
  free(second);
  free(alloc(kKiB));  // time passes
  free(first);
  AllocatorConfig config;
  config.garbage_collection_threshold = 0.5;
  allocator->set_config(config);
  (void)alloc(26 * kMiB);  // 66 MiB are reserved, 16 more than the threshold
  EXPECT_EQ(reserved(), (20 + 24 + 26 + 2) * kMiB);
  free(third);
}

TEST_F(ReclaimTest, OversizeBlocksAreNotSplitNorGivenToSmallRequests) {
  use_max_split(32 * kMiB);
  std::byte* block = alloc(40 * kMiB);
  free(block);
  std::byte* small = alloc(5 * kMiB);
  EXPECT_NE(small, block);
  EXPECT_EQ(alloc(35 * kMiB), block) << "rounded up within the limit";
  EXPECT_EQ(allocated(), 45 * kMiB);
  EXPECT_EQ(stats().oversize_allocations.current, 1);
  EXPECT_EQ(stats().oversize_segments.current, 1);
}

TEST_F(ReclaimTest, OversizeBlocksAreReturnedBeforeTheRestOfTheCache) {
  use_max_split(32 * kMiB);
  free(alloc(60 * kMiB));
  std::byte* small = alloc(5 * kMiB);
  free(alloc(8 * kMiB));
  free(small);
  EXPECT_NE(alloc(36 * kMiB), nullptr);
  EXPECT_EQ(reserved(), 56 * kMiB) << "the 20 MiB segment stayed";
  EXPECT_EQ(stats().num_alloc_retries, 0);
}

TEST_F(ReclaimTest, SeveralOversizeBlocksAreReturnedWhenOneIsNotEnough) {
  use_max_split(24 * kMiB);
  std::byte* first = alloc(30 * kMiB);
  std::byte* second = alloc(32 * kMiB);
  std::byte* third = alloc(34 * kMiB);
  free(first);
  free(second);
  free(third);
  EXPECT_NE(alloc(60 * kMiB), nullptr);
  EXPECT_EQ(reserved(), 90 * kMiB) << "the two largest went";
}

TEST_F(ReclaimTest, ChangedConfigKeepsTheCountsRight) {
  use_max_split(32 * kMiB);
  std::byte* block = alloc(40 * kMiB);
  allocator->set_config({});
  free(block);
  allocator->empty_cache();
  EXPECT_EQ(stats().oversize_allocations.current, 0);
  EXPECT_EQ(stats().oversize_segments.current, 0);
}

const Scratch kKernelMemory;

TEST_F(ReclaimTest, ScratchMemoryCountsTowardTheLimitAndIsReleasedWhenNobodyUsesIt) {
  const std::size_t limit = source.limit();
  testing::Gate in_use, idle;
  std::jthread kernel([&] {
    (void)kKernelMemory.get<std::byte>(static_cast<std::int64_t>(limit * 3 / 4));
    in_use.pass();
    let_go_of_scratch();
    idle.pass();
  });
  in_use.wait_for_arrivals();
  EXPECT_LE(allocator->memory_info().first, limit / 4);
  EXPECT_EQ(alloc(limit / 2), nullptr);
  in_use.open();
  idle.wait_for_arrivals();
  void* const block = alloc(limit / 2);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(scratch_bytes(0).current, 0);
  free(block);
  idle.open();
}

TEST_F(ReclaimTest, EmptyingTheCacheReleasesScratchMemory) {
  testing::Gate idle;
  std::jthread kernel([&] {
    (void)kKernelMemory.get<std::byte>(1 << 20);
    let_go_of_scratch();
    idle.pass();
  });
  idle.wait_for_arrivals();
  EXPECT_GE(scratch_bytes(0).current, 1 << 20);
  allocator->empty_cache();
  EXPECT_EQ(scratch_bytes(0).current, 0);
  idle.open();
}

}  // namespace
}  // namespace loom::testing
