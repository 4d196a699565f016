// SPDX-License-Identifier: BSD-3-Clause
// How many cores run a grid: a setting that counts when it runs.
#include "loom/base/check.h"
#include "loom/device/core_limit.h"
#include "loom/device/cores.h"

#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <latch>
#include <set>
#include <thread>

namespace loom {
namespace {

class CoreLimitTest : public ::testing::Test {
 protected:
  ~CoreLimitTest() override { set_core_limit(INT_MAX); }
  Cores cores_{4};
};

TEST_F(CoreLimitTest, IsAPositiveNumber) {
  EXPECT_THROW(set_core_limit(0), Error);
  EXPECT_EQ(core_limit(), INT_MAX);
}

TEST_F(CoreLimitTest, OneCoreRunsAllBlocksOnTheCallingThread) {
  set_core_limit(1);
  std::set<std::thread::id> threads;
  cores_.run(100, [&](std::int64_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

TEST_F(CoreLimitTest, NoMoreCoresThanItSaysAreAtAGrid) {
  set_core_limit(2);
  std::atomic<int> inside{0}, most{0};
  for (int round = 0; round < 50; ++round) {
    std::latch together(2);  // two there are
    cores_.run(16, [&](std::int64_t block) {
      const int now = inside.fetch_add(1) + 1;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      if (block == 0 || block == 8) together.arrive_and_wait();
      inside.fetch_sub(1);
    });
  }
  EXPECT_EQ(most, 2);
}

TEST_F(CoreLimitTest, CountsForTheNextGridWhenItChanges) {
  set_core_limit(1);
  cores_.run(4, [](std::int64_t) {});
  set_core_limit(4);
  std::latch together(4);
  cores_.run(4, [&](std::int64_t) { together.arrive_and_wait(); });
}

}  // namespace
}  // namespace loom
