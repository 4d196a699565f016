// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/arena.h"

#include "loom/base/check.h"
#include "loom/device/address.h"

#include <gtest/gtest.h>

#include "support/stress.h"
#include "support/threads.h"
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ios>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace loom {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class ArenaTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kLimit = 64 * kMiB;

  void* map(std::size_t bytes) { return arena_.map_segment(bytes); }
  void unmap(void* segment, std::size_t bytes) { arena_.unmap_segment(segment, bytes); }

  static bool is_zero(const void* segment, std::size_t bytes) {
    const auto* const memory = static_cast<const unsigned char*>(host_address(segment));
    return memory[0] == 0 && std::memcmp(memory, memory + 1, bytes - 1) == 0;
  }

  Arena arena_{5, kLimit};
};

TEST_F(ArenaTest, SegmentsAreZeroedWritableAndAligned) {
  void* const segment = map(4 * kMiB);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment) % arena_.granularity(), 0U);
  EXPECT_TRUE(is_zero(segment, 4 * kMiB));
  std::memset(host_address(segment), 0x5a, 4 * kMiB);
}

TEST_F(ArenaTest, SizesAreRoundedUpToTheGranularity) {
  void* const segment = map(1);
  EXPECT_EQ(arena_.mapped(), arena_.granularity());
  unmap(segment, 1);
  EXPECT_EQ(arena_.mapped(), 0U);
}

TEST_F(ArenaTest, SegmentsDoNotOverlap) {
  void* const first = map(2 * kMiB);
  void* const second = map(2 * kMiB);
  std::memset(host_address(first), 1, 2 * kMiB);
  EXPECT_TRUE(is_zero(second, 2 * kMiB));
}

TEST_F(ArenaTest, AnUnmappedSegmentComesBackZeroed) {
  void* const first = map(2 * kMiB);
  std::memset(host_address(first), 0xff, 2 * kMiB);
  unmap(first, 2 * kMiB);
  void* const again = map(2 * kMiB);
  EXPECT_EQ(again, first);
  EXPECT_TRUE(is_zero(again, 2 * kMiB));
}

TEST_F(ArenaTest, RefusesWhatIsBeyondTheLimit) {
  EXPECT_EQ(arena_.limit(), kLimit);
  EXPECT_EQ(map(kLimit + 1), nullptr);
  EXPECT_EQ(map(SIZE_MAX), nullptr);
  void* const most = map(kLimit - 2 * kMiB);
  EXPECT_NE(most, nullptr);
  EXPECT_EQ(map(3 * kMiB), nullptr);
  EXPECT_NE(map(2 * kMiB), nullptr);
  EXPECT_EQ(map(1), nullptr);
  unmap(most, kLimit - 2 * kMiB);
  EXPECT_NE(map(kLimit - 2 * kMiB), nullptr);
}

TEST_F(ArenaTest, NothingIsNotMapped) {
  EXPECT_EQ(map(0), nullptr);
  unmap(nullptr, 0);
  EXPECT_EQ(arena_.mapped(), 0U);
}

TEST_F(ArenaTest, FragmentsOfAddressesDoNotFailWhatTheLimitAllows) {
  std::vector<void*> segments;
  for (std::size_t i = 0; i < kLimit / (2 * kMiB); ++i) segments.push_back(map(2 * kMiB));
  for (std::size_t i = 0; i < segments.size(); i += 2) unmap(segments[i], 2 * kMiB);
  // Half of the limit is free, in pieces of 2 MiB with segments in between.
  EXPECT_NE(map(kLimit / 2), nullptr);
}

TEST_F(ArenaTest, NeighbouringFreeRangesGrowTogether) {
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> segments;
    for (std::size_t i = 0; i < kLimit / (2 * kMiB); ++i) segments.push_back(map(2 * kMiB));
    // In an order that joins with neither, one or both neighbours.
    for (const std::size_t start : {1U, 0U}) {
      for (std::size_t i = start; i < segments.size(); i += 2) unmap(segments[i], 2 * kMiB);
    }
    void* const whole = map(kLimit);
    // The addresses that never were in use would do as well, were the rest not joined to them.
    EXPECT_EQ(whole, segments.front());
    unmap(whole, kLimit);
  }
}

TEST_F(ArenaTest, AddressesTellTheDevice) {
  void* const segment = map(4 * kMiB);
  EXPECT_EQ(device_of_address(segment), 5);
  EXPECT_EQ(device_of_address(static_cast<std::byte*>(segment) + 4 * kMiB - 1), 5);
  int local = 0;
  EXPECT_EQ(device_of_address(&local), -1);
  EXPECT_EQ(device_of_address(nullptr), -1);
  EXPECT_EQ(device_of_address(reinterpret_cast<void*>(UINTPTR_MAX)), -1);
}

TEST_F(ArenaTest, AddressesAreGivenBackWithTheArena) {
  void* freed = nullptr;
  for (int i = 0; i < 200; ++i) {
    Arena arena(7, kLimit);
    freed = arena.map_segment(2 * kMiB);
    ASSERT_NE(freed, nullptr);
    ASSERT_EQ(device_of_address(freed), 7);
  }
  EXPECT_EQ(device_of_address(freed), -1);
}

TEST(ArenaLimitTest, AnArenaBeyondTheReservationIsAnError) {
  EXPECT_THROW(Arena(0, std::size_t{64} << 40), Error);
  EXPECT_THROW(Arena(-1, kMiB), Error);
}

TEST_F(ArenaTest, ASegmentOfAnotherArenaStopsTheProcess) {
  // A child that is forked when tests before have used a device has no segments.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Arena other(6, kLimit);
  void* const segment = other.map_segment(2 * kMiB);
  EXPECT_DEATH(unmap(segment, 2 * kMiB), "not of this arena");
}

/// What the system says of the mapping that holds the address: "rd wr mr mw me ac sd dc hg".
std::string flags_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      here = begin <= wanted && wanted < end;
    }
    if (here && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

TEST_F(ArenaTest, ChildrenInheritNoPageOfIt) {
  void* const first = map(2 * kMiB);
  EXPECT_NE(flags_of(host_address(first)).find(" dc "), std::string::npos);
  unmap(first, 2 * kMiB);
  void* const second = map(2 * kMiB);  // in the place of what was given back
  EXPECT_EQ(second, first);
  EXPECT_NE(flags_of(host_address(second)).find(" dc "), std::string::npos);
}

TEST_F(ArenaTest, ManyThreadsNeverShareMemory) {
  testing::on_threads(8, [&](int thread) {
    testing::Random random(static_cast<std::uint64_t>(thread) + 1);
    std::map<void*, std::size_t> mine;
    const int rounds = testing::scaled(1'000);
    for (int round = 0; round < rounds; ++round) {
      const std::size_t bytes = (1 + random.below(3)) * 2 * kMiB;
      void* const segment = random.one_in(2) ? map(bytes) : nullptr;
      if (segment != nullptr) {
        // One byte in each granule: the pages of a neighbour would show it.
        for (std::size_t at = 0; at < bytes; at += arena_.granularity()) {
          auto* const byte = static_cast<unsigned char*>(host_address(segment)) + at;
          EXPECT_EQ(*byte, 0);
          *byte = static_cast<unsigned char>(thread + 1);
        }
        mine.emplace(segment, bytes);
      } else if (!mine.empty()) {
        const auto [oldest, size] = *mine.begin();
        for (std::size_t at = 0; at < size; at += arena_.granularity()) {
          EXPECT_EQ(static_cast<unsigned char*>(host_address(oldest))[at], thread + 1);
        }
        mine.erase(mine.begin());
        unmap(oldest, size);
      }
    }
    for (const auto& [segment, bytes] : mine) unmap(segment, bytes);
  });
  EXPECT_EQ(arena_.mapped(), 0U);
  EXPECT_NE(map(kLimit), nullptr);
}

}  // namespace
}  // namespace loom
