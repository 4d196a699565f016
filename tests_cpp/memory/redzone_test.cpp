// SPDX-License-Identifier: BSD-3-Clause
// What AddressSanitizer is told of blocks: accesses beyond them, and after they were freed, are
// reported as on the heap.
#include "loom/memory/redzone.h"

#include "loom/base/options.h"
#include "loom/device/device.h"
#include "loom/memory/device_allocator.h"

#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"
#include <cstddef>
#include <memory>

namespace loom::testing {
namespace {

using detail::is_poisoned;

class RedzoneTest : public AllocatorTest {
 protected:
  RedzoneTest() { allocator = std::make_unique<CachingAllocator>(0, source, kRedzone); }
  void SetUp() override {
    if (!detail::kPoisons) GTEST_SKIP() << "needs AddressSanitizer";
  }

  static constexpr std::size_t kRedzone = 64;
};

TEST_F(RedzoneTest, NobodyOwnsWhatLiesBehindABlock) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, kKiB, 3 * kMiB}) {
    std::byte* block = alloc(bytes);
    std::byte* neighbour = alloc(bytes);
    EXPECT_FALSE(is_poisoned(block)) << bytes;
    EXPECT_FALSE(is_poisoned(block + bytes - 1)) << bytes;
    EXPECT_TRUE(is_poisoned(block + bytes)) << bytes;
    EXPECT_TRUE(is_poisoned(block + bytes + kRedzone - 1)) << bytes;
    EXPECT_FALSE(is_poisoned(neighbour)) << bytes;
  }
}

TEST_F(RedzoneTest, AReadBehindABlockEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::byte* block = alloc(kKiB);
  EXPECT_DEATH((void)static_cast<volatile std::byte*>(block)[kKiB], "use-after-poison");
}

TEST_F(RedzoneTest, FreedBlocksBelongToNobodyUntilTheyAreHandedOut) {
  std::byte* block = alloc(kKiB);
  free(block);
  EXPECT_TRUE(is_poisoned(block));
  EXPECT_EQ(alloc(kKiB / 2), block);
  EXPECT_FALSE(is_poisoned(block + kKiB / 2 - 1));
  EXPECT_TRUE(is_poisoned(block + kKiB / 2));
}

TEST_F(RedzoneTest, QueuedCommandsMayUseWhatIsFreed) {
  std::byte* block = alloc(kKiB);
  close_gate(a);
  free(block);
  EXPECT_FALSE(is_poisoned(block));
  EXPECT_EQ(alloc(kKiB / 2), block);
  EXPECT_FALSE(is_poisoned(block + kKiB - 1)) << "of the block that was there before";
}

TEST_F(RedzoneTest, GraphsMayUseWhatWasFreedDuringTheirCapture) {
  const PoolId pool = CachingAllocator::new_pool_id();
  allocator->begin_allocate_to_pool(pool, [](const Queue& /*queue*/) { return true; });
  std::byte* block = alloc(kKiB);
  free(block);
  EXPECT_FALSE(is_poisoned(block));
  allocator->end_allocate_to_pool(pool);
}

TEST_F(RedzoneTest, SegmentsAreGivenBackAsTheyWereMapped) {
  CachingAllocator of_arena(0, device(0).arena(), kRedzone);
  Queue& queue = device(0).default_queue();
  auto* const block = static_cast<std::byte*>(of_arena.allocate(kKiB, queue));
  of_arena.free(block);
  EXPECT_TRUE(is_poisoned(block));
  of_arena.empty_cache();
  EXPECT_FALSE(is_poisoned(block)) << "the next one there need not know";
}

TEST_F(RedzoneTest, DevicesHaveOne) {
  if (options().memory != MemoryMode::kUnified) GTEST_SKIP() << "needs LOOM_MEMORY=unified";
  CachingAllocator& of_device = device_allocator(0);
  Queue& queue = device(0).default_queue();
  queue.synchronize();
  auto* const block = static_cast<std::byte*>(of_device.allocate(kKiB, queue));
  EXPECT_FALSE(is_poisoned(block + kKiB - 1));
  EXPECT_TRUE(is_poisoned(block + kKiB));
  of_device.free(block);
}

}  // namespace
}  // namespace loom::testing
