// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/cpu_set.h"

#include "loom/device/processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace loom {
namespace {

using ::testing::ElementsAre;

TEST(CpuSetTest, HoldsProcessorsBeyondThoseOfAStandardSet) {
  CpuSet set({3, CPU_SETSIZE, 5000, -1});
  EXPECT_THAT(set.cpus(), ElementsAre(3, CPU_SETSIZE, 5000));
  EXPECT_TRUE(set.contains(5000));
  EXPECT_FALSE(set.contains(5001));
  EXPECT_FALSE(set.contains(100'000));
  EXPECT_FALSE(set.contains(-1));
  set.erase(5000);
  set.erase(100'000);
  EXPECT_THAT(set.cpus(), ElementsAre(3, CPU_SETSIZE));
}

TEST(CpuSetTest, EqualSetsMayDifferInRoom) {
  CpuSet set({3, 5000});
  set.erase(5000);
  EXPECT_EQ(set, CpuSet({3}));
  EXPECT_EQ(CpuSet({3}), set);
  set.insert(4000);
  EXPECT_FALSE(set == CpuSet({3}));
  EXPECT_FALSE(set.empty());
  EXPECT_EQ(CpuSet(), CpuSet(std::vector<int>{}));
  EXPECT_TRUE(CpuSet().empty());
}

/// As the call of a system that could have 8192 processors.
int large_system(pid_t, std::size_t bytes, cpu_set_t* set) {
  constexpr std::size_t kBytes = 8192 / 8;
  if (bytes < kBytes) {
    errno = EINVAL;
    return -1;
  }
  std::memset(set, 0, bytes);
  CPU_SET_S(1, bytes, set);
  CPU_SET_S(8191, bytes, set);
  return 0;
}

int failing_system(pid_t, std::size_t, cpu_set_t*) {
  errno = EPERM;
  return -1;
}

TEST(CpuSetTest, AsksAgainOnSystemsWithMoreProcessors) {
  const auto set = CpuSet::of_this_thread(&large_system);
  ASSERT_TRUE(set.has_value());
  EXPECT_THAT(set->cpus(), ElementsAre(1, 8191));
  EXPECT_FALSE(CpuSet::of_this_thread(&failing_system).has_value());
}

TEST(CpuSetTest, AThreadIsMovedToIt) {
  std::thread([] {
    const auto before = CpuSet::of_this_thread();
    ASSERT_TRUE(before.has_value());
    const CpuSet one({before->cpus().back()});
    EXPECT_TRUE(one.apply_to_this_thread());
    EXPECT_EQ(CpuSet::of_this_thread(), one);
    EXPECT_FALSE(CpuSet().apply_to_this_thread());
    EXPECT_EQ(CpuSet::of_this_thread(), one);
  }).join();
}

bool g_refuses = false;

int sometimes_refusing(pid_t thread, std::size_t bytes, const cpu_set_t* set) {
  if (!g_refuses) return sched_setaffinity(thread, bytes, set);
  errno = EINVAL;
  return -1;
}

TEST(ProcessorsTest, ARestoreThatTheSystemRefusesIsMadeUpForLater) {
  std::thread([] {
    const auto before = CpuSet::of_this_thread();
    Processors processors(&sometimes_refusing);
    ASSERT_TRUE(processors.move_to(before->cpus().front()));
    g_refuses = true;
    processors.restore();
    EXPECT_TRUE(processors.restricted());
    EXPECT_FALSE(processors.move_to(before->cpus().front()));
    EXPECT_TRUE(processors.restricted());
    g_refuses = false;
    processors.restore();
    EXPECT_FALSE(processors.restricted());
    EXPECT_EQ(CpuSet::of_this_thread(), before);
  }).join();
}

}  // namespace
}  // namespace loom
