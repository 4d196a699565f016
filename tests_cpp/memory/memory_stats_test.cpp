// SPDX-License-Identifier: BSD-3-Clause
// The numbers mean what c10's DeviceStats mean.
#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"

namespace loom::testing {
namespace {

using MemoryStatsTest = AllocatorTest;

constexpr auto kMi = static_cast<std::int64_t>(kMiB);

TEST_F(MemoryStatsTest, AllocationCountsBlocksAndBytesByPool) {
  (void)alloc(1000);
  std::byte* large = alloc(3 * kMiB);
  free(large);
  const MemoryStats s = stats();
  EXPECT_EQ(s.allocation[kSmall], (MemoryStat{1, 1, 1, 0}));
  EXPECT_EQ(s.allocation[kLarge], (MemoryStat{0, 1, 1, 1}));
  EXPECT_EQ(s.allocation[kAll], (MemoryStat{1, 2, 2, 1}));
  EXPECT_EQ(s.allocated_bytes[kSmall], (MemoryStat{1024, 1024, 1024, 0}));
  EXPECT_EQ(s.allocated_bytes[kLarge], (MemoryStat{0, 3 * kMi, 3 * kMi, 3 * kMi}));
  EXPECT_EQ(s.requested_bytes[kSmall].current, 1000);
  EXPECT_EQ(s.requested_bytes[kAll].allocated, 1000 + 3 * kMi);
}

TEST_F(MemoryStatsTest, PeakOfTheAggregateIsNotTheSumOfPeaks) {
  free(alloc(kMiB));
  free(alloc(3 * kMiB));
  const MemoryStats s = stats();
  EXPECT_EQ(s.allocated_bytes[kSmall].peak, kMi);
  EXPECT_EQ(s.allocated_bytes[kLarge].peak, 3 * kMi);
  EXPECT_EQ(s.allocated_bytes[kAll].peak, 3 * kMi);
}

TEST_F(MemoryStatsTest, SegmentsAndReservedBytesFollowTheSource) {
  std::byte* block = alloc(12 * kMiB);
  (void)alloc(1);
  free(block);
  allocator->empty_cache();
  const MemoryStats s = stats();
  EXPECT_EQ(s.segment[kAll], (MemoryStat{1, 2, 2, 1}));
  EXPECT_EQ(s.segment[kLarge], (MemoryStat{0, 1, 1, 1}));
  EXPECT_EQ(s.reserved_bytes[kAll], (MemoryStat{2 * kMi, 14 * kMi, 14 * kMi, 12 * kMi}));
  EXPECT_EQ(s.num_device_alloc, 2);
  EXPECT_EQ(s.num_device_free, 1);
}

TEST_F(MemoryStatsTest, InactiveSplitIsTheFreePartOfSharedSegments) {
  std::byte* first = alloc(kKiB);
  EXPECT_EQ(stats().inactive_split[kSmall].current, 1);
  EXPECT_EQ(stats().inactive_split_bytes[kSmall].current, 2 * kMi - 1024);
  std::byte* second = alloc(kKiB);
  free(first);
  EXPECT_EQ(stats().inactive_split[kSmall].current, 2);
  EXPECT_EQ(stats().inactive_split_bytes[kSmall].current, 2 * kMi - 1024);
  free(second);
  EXPECT_EQ(stats().inactive_split[kSmall].current, 0) << "a whole free segment is not split";
  EXPECT_EQ(stats().inactive_split_bytes[kSmall].current, 0);
}

TEST_F(MemoryStatsTest, ResetPeaksStartFromWhatIsThere) {
  std::byte* kept = alloc(kKiB);
  free(alloc(kMiB));
  allocator->reset_peak_stats();
  EXPECT_EQ(stats().allocated_bytes[kAll], (MemoryStat{1024, 1024, 1024 + kMi, kMi}));
  free(kept);
  EXPECT_EQ(stats().allocated_bytes[kAll].peak, 1024);
}

TEST_F(MemoryStatsTest, ResetAccumulatedKeepsCurrentAndPeak) {
  std::byte* kept = alloc(kKiB);
  free(alloc(kMiB));
  EXPECT_EQ(alloc(kMiB * 1000), nullptr);
  allocator->reset_accumulated_stats();
  EXPECT_EQ(stats().allocated_bytes[kAll], (MemoryStat{1024, 1024 + kMi, 0, 0}));
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_EQ(stats().num_device_alloc, 0);
  free(kept);
  EXPECT_EQ(stats().allocated_bytes[kAll], (MemoryStat{0, 1024 + kMi, 0, 1024}));
}

TEST_F(MemoryStatsTest, ShortFormAgrees) {
  (void)alloc(700);
  EXPECT_EQ(allocator->allocated_and_reserved(), std::make_pair(std::size_t{1024}, 2 * kMiB));
}

TEST_F(MemoryStatsTest, MaxSplitSizeIsReported) {
  EXPECT_EQ(stats().max_split_size, SIZE_MAX);
  AllocatorConfig config;
  config.max_split_size = 64 * kMiB;
  allocator->set_config(config);
  EXPECT_EQ(stats().max_split_size, 64 * kMiB);
}

}  // namespace
}  // namespace loom::testing
