// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/caching_allocator.h"

#include "loom/base/check.h"

#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"
#include <cstring>
#include <limits>
#include <set>
#include <vector>

namespace loom::testing {
namespace {

using CachingAllocatorTest = AllocatorTest;
/// A child that is forked when tests before have used a device refuses to do anything.
class CachingAllocatorDeathTest : public AllocatorTest {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(CachingAllocatorTest, ZeroBytesGiveNullWithoutAnError) {
  EXPECT_EQ(alloc(0), nullptr);
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_EQ(source.map_calls(), 0);
}

TEST_F(CachingAllocatorTest, NullIsFreedSilently) {
  free(nullptr);
  EXPECT_EQ(allocated(), 0);
}

TEST_F(CachingAllocatorTest, BlocksAreAlignedTo512Bytes) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{513}, kMiB + 1, 11 * kMiB}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(alloc(bytes)) % 512, 0u) << bytes;
  }
}

TEST_F(CachingAllocatorTest, BlocksDoNotOverlap) {
  const std::vector<std::size_t> sizes = {1,    512,      513,          70'000,       kMiB,
                                          kMiB, kMiB + 1, 3 * kMiB + 7, 9 * kMiB + 1, 12 * kMiB};
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    blocks.push_back(alloc(sizes[i]));
    std::memset(blocks.back(), static_cast<int>(i + 1), sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto pattern = static_cast<std::byte>(i + 1);
    EXPECT_EQ(blocks[i][0], pattern) << i;
    EXPECT_EQ(blocks[i][sizes[i] - 1], pattern) << i;
  }
}

TEST_F(CachingAllocatorTest, SmallRequestsShareASegmentOfTwoMebibytes) {
  for (int i = 0; i < 4; ++i) (void)alloc(512 * kKiB);
  EXPECT_EQ(reserved(), 2 * kMiB);
}

TEST_F(CachingAllocatorTest, MediumRequestsShareASegmentOfTwentyMebibytes) {
  for (int i = 0; i < 4; ++i) (void)alloc(5 * kMiB);
  EXPECT_EQ(reserved(), 20 * kMiB);
}

TEST_F(CachingAllocatorTest, BigRequestsGetASegmentRoundedToTwoMebibytes) {
  (void)alloc(11 * kMiB);
  EXPECT_EQ(reserved(), 12 * kMiB);
}

TEST_F(CachingAllocatorTest, LargeRestBelowOneMebibyteIsNotCutOff) {
  (void)alloc(11 * kMiB + 512 * kKiB);
  EXPECT_EQ(allocated(), 12 * kMiB);
  EXPECT_EQ(stats().inactive_split[kAll].current, 0);
}

TEST_F(CachingAllocatorTest, SmallestBlockThatFitsIsTaken) {
  std::byte* wide = alloc(64 * kKiB);
  std::byte* wall = alloc(512);
  std::byte* narrow = alloc(16 * kKiB);
  std::byte* wall2 = alloc(512);
  free(wide);
  free(narrow);
  EXPECT_EQ(alloc(16 * kKiB), narrow);
  EXPECT_EQ(alloc(60 * kKiB), wide);
  free(wall);
  free(wall2);
}

TEST_F(CachingAllocatorTest, FreedBlockIsReusedAtOnceByItsQueueWhileWorkIsQueued) {
  close_gate(a);
  std::byte* first = alloc(4 * kKiB);
  a.submit("use", [] {});
  free(first);
  EXPECT_EQ(alloc(4 * kKiB), first);
}

TEST_F(CachingAllocatorTest, FreedBlockIsNotGivenToAnotherQueue) {
  std::byte* first = alloc(4 * kKiB, a);
  free(first);
  std::byte* other = alloc(4 * kKiB, b);
  EXPECT_NE(other, first);
  EXPECT_EQ(source.live_segments(), 2);
}

TEST_F(CachingAllocatorTest, NeighboursMergeInWhateverOrderTheyAreFreed) {
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1},
                                                {1, 0, 2}, {1, 2, 0}, {2, 0, 1}};
  for (const auto& order : orders) {
    std::byte* blocks[3] = {alloc(700 * kKiB), alloc(700 * kKiB), alloc(600 * kKiB)};
    for (const int i : order) free(blocks[i]);
    std::byte* again = alloc(kMiB);
    EXPECT_EQ(again, blocks[0]);
    EXPECT_EQ(source.live_segments(), 1);
    free(again);
  }
}

TEST_F(CachingAllocatorTest, EmptyCacheReturnsFreeSegmentsOnly) {
  std::byte* kept = alloc(kKiB);
  free(alloc(30 * kMiB));
  allocator->empty_cache();
  EXPECT_EQ(reserved(), 2 * kMiB);
  free(kept);
  allocator->empty_cache();
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(CachingAllocatorTest, RoundUpOfTheConfigIsUsed) {
  AllocatorConfig config;
  config.round_up = [](std::size_t bytes) { return bytes <= 1000 ? 4096 : std::size_t{1}; };
  allocator->set_config(config);
  (void)alloc(1000);
  EXPECT_EQ(allocated(), 4096);
  (void)alloc(5000);  // a result below the request is ignored
  EXPECT_EQ(allocated(), 4096 + 5120);
}

TEST_F(CachingAllocatorTest, ConfigOutOfRangeIsRefused) {
  EXPECT_THROW(allocator->set_config({.max_split_size = kMiB}), Error);
  EXPECT_THROW(allocator->set_config({.garbage_collection_threshold = 1.0}), Error);
  EXPECT_THROW(allocator->set_config({.garbage_collection_threshold = -0.1}), Error);
}

TEST_F(CachingAllocatorTest, ManyBlocksAreAllDistinctAndFound) {
  std::set<std::byte*> blocks;
  for (std::size_t i = 0; i < 5000; ++i) blocks.insert(alloc(512 + i % 7 * 512));
  EXPECT_EQ(blocks.size(), 5000u);
  for (std::byte* block : blocks) EXPECT_TRUE(allocator->find(block + 511).has_value());
  for (std::byte* block : blocks) free(block);
  EXPECT_EQ(active(), 0);
  EXPECT_EQ(stats().inactive_split[kAll].current, 0) << "everything merged";
}

TEST_F(CachingAllocatorTest, CallbackThatThrowsLosesNothing) {
  AllocatorConfig config;
  config.round_up = [](std::size_t) -> std::size_t { throw Error("no"); };
  allocator->set_config(config);
  EXPECT_THROW((void)alloc(1), Error);
  allocator->set_config({});
  EXPECT_NE(alloc(1), nullptr);
  EXPECT_EQ(stats().allocation[kAll].allocated, 1);
}

TEST_F(CachingAllocatorDeathTest, FreeingTwiceDiesNamingTheAddress) {
  std::byte* block = alloc(100);
  free(block);
  EXPECT_DEATH(free(block), "not yet freed, got 0x[0-9a-f]+");
}

TEST_F(CachingAllocatorDeathTest, FreeingAnInteriorAddressDies) {
  std::byte* block = alloc(2048);
  EXPECT_DEATH(free(block + 512), "expected an address from allocate");
  EXPECT_DEATH(free(block + 1), "expected an address from allocate");
}

TEST_F(CachingAllocatorDeathTest, FreeingForeignMemoryDies) {
  int local = 0;
  EXPECT_DEATH(free(&local), "expected an address from allocate");
}

}  // namespace
}  // namespace loom::testing
