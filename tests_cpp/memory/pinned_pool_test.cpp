// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/pinned_pool.h"

#include "loom/base/check.h"
#include "loom/device/thread.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/forked.h"
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace loom {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::byte* map(std::size_t bytes) { return static_cast<std::byte*>(map_pinned(bytes)); }

TEST(PinnedPoolTest, MemoryIsZeroedAndWritable) {
  std::byte* memory = map(100'000);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory[0], std::byte{0});
  EXPECT_EQ(memory[99'999], std::byte{0});
  std::memset(memory, 1, 100'000);
  unmap_pinned(memory);
}

TEST(PinnedPoolTest, EveryAddressInsideIsPinnedAndNoneOutside) {
  std::byte* memory = map(5 * kPage);
  EXPECT_TRUE(is_pinned(memory));
  EXPECT_TRUE(is_pinned(memory + 12'345));
  EXPECT_TRUE(is_pinned(memory + 5 * kPage - 1));
  EXPECT_FALSE(is_pinned(memory + 5 * kPage));
  EXPECT_FALSE(is_pinned(memory - 1));
  EXPECT_FALSE(is_pinned(nullptr));
  int local = 0;
  EXPECT_FALSE(is_pinned(&local));
  unmap_pinned(memory);
  EXPECT_FALSE(is_pinned(memory));
}

TEST(PinnedPoolTest, LargeMappingsAreAlignedToHugePages) {
  std::byte* memory = map(5 * kMiB + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (2 * kMiB), 0u);
  EXPECT_TRUE(is_pinned(memory + 5 * kMiB + 4095)) << "rounded up to whole pages";
  EXPECT_FALSE(is_pinned(memory + 5 * kMiB + 4096));
  std::memset(memory, 1, 5 * kMiB + 1);
  unmap_pinned(memory);
}

TEST(PinnedPoolTest, NothingAndTooMuchGiveNull) {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(map_pinned(0), nullptr);
  EXPECT_EQ(map_pinned(kMax), nullptr);
  EXPECT_EQ(map_pinned(kMax - 4095), nullptr);
  EXPECT_EQ(map_pinned(kMax / 8), nullptr);
  unmap_pinned(nullptr);
}

TEST(PinnedPoolTest, MappingsAreKeptApart) {
  std::vector<std::byte*> mappings;
  for (std::size_t i = 1; i <= 50; ++i) mappings.push_back(map(i * 4096));
  for (std::size_t i = 0; i < 50; i += 2) unmap_pinned(mappings[i]);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(is_pinned(mappings[i] + (i + 1) * 4096 - 1), i % 2 == 1) << i;
  }
  for (std::size_t i = 1; i < 50; i += 2) unmap_pinned(mappings[i]);
}

TEST(PinnedPoolTest, ThreadsMapAndAskAtOnce) {
  std::byte* stable = map(4096);
  std::atomic<bool> done{false};
  std::thread asker([&] {
    while (!done) EXPECT_TRUE(is_pinned(stable + 100));
  });
  std::vector<std::thread> mappers;
  mappers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    mappers.emplace_back([] {
      for (int round = 0; round < 200; ++round) {
        std::byte* memory = map(8192);
        EXPECT_TRUE(is_pinned(memory + 5000));
        unmap_pinned(memory);
      }
    });
  }
  for (std::thread& mapper : mappers) mapper.join();
  done = true;
  asker.join();
  unmap_pinned(stable);
}

using PinnedPoolDeathTest = testing::ChildTest;

TEST_F(PinnedPoolDeathTest, UnmappingTwiceDies) {
  std::byte* memory = map(4096);
  unmap_pinned(memory);
  EXPECT_DEATH(unmap_pinned(memory), "not yet unmapped");
}

using PinnedPoolForkTest = testing::ChildTest;

TEST_F(PinnedPoolForkTest, AChildGetsNoneAndMayDropWhatItInherited) {
  EXPECT_EXIT(testing::finish([] {
                note_device_used();
                std::byte* const memory = map(kPage);
                EXPECT_TRUE(is_pinned(memory));
                EXPECT_EQ(testing::exit_code_of_fork([&] {
                            EXPECT_THROW((void)map_pinned(kPage), Error);
                            EXPECT_FALSE(is_pinned(memory));
                            unmap_pinned(memory);
                            memory[0] = std::byte{1};  // still there
                          }),
                          0);
                EXPECT_EQ(memory[0], std::byte{0});
                unmap_pinned(memory);
              }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
