// SPDX-License-Identifier: BSD-3-Clause
// How many cores run a grid: a setting that counts when it runs. How a thread computes with floats:
// one that counts when it submits.
#include "loom/base/check.h"
#include "loom/base/float_mode.h"
#include "loom/device/command_graph.h"
#include "loom/device/core_limit.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/flushing.h"
#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <atomic>
#include <climits>
#include <latch>
#include <memory>
#include <set>
#include <thread>
#include <vector>

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

class FloatModeTest : public testing::QueueFixture {
 protected:
  void SetUp() override {
    if (!testing::Flushing::kKnown) GTEST_SKIP() << "no flushed denormals here";
  }
  void submit_half(float& result) {
    queue_.submit("halve", [&result] { result = testing::half_of_least(); });
  }
};

TEST_F(FloatModeTest, IsThatOfTheSubmissionHoweverLateTheCommandRuns) {
  testing::Gate gate;
  submit_gate(queue_, gate);
  std::vector<float> halves(3, -1);
  submit_half(halves[0]);
  {
    const testing::Flushing flushing;
    submit_half(halves[1]);
  }
  submit_half(halves[2]);
  gate.open();
  queue_.synchronize();
  EXPECT_GT(halves[0], 0);
  EXPECT_EQ(halves[1], 0);
  EXPECT_GT(halves[2], 0);
}

TEST_F(FloatModeTest, OfTwoThreadsStaysWithTheCommandsOfEach) {
  constexpr int kRounds = 500;
  std::vector<float> kept(kRounds, -1), flushed(kRounds, -1);
  testing::on_threads(2, [&](int index) {
    std::unique_ptr<testing::Flushing> flushing;
    if (index == 1) flushing = std::make_unique<testing::Flushing>();
    for (float& result : index == 1 ? flushed : kept) {
      submit_half(result);
      std::this_thread::yield();
    }
  });
  queue_.synchronize();
  for (const float result : kept) ASSERT_GT(result, 0);
  for (const float result : flushed) ASSERT_EQ(result, 0);
}

TEST_F(FloatModeTest, GoesToTheBlocksOfAGridOnOtherThreads) {
  Cores cores(3);
  Queue queue(QueueId{0, 0, 7}, cores);
  std::vector<float> halves(3, -1);
  const auto grid = [&] {
    std::latch together(3);  // each on a thread of its own
    cores.run(3, [&](std::int64_t block) {
      together.arrive_and_wait();
      halves[static_cast<std::size_t>(block)] = testing::half_of_least();
    });
  };
  {
    const testing::Flushing flushing;
    queue.submit("grid", grid);
  }
  queue.synchronize();
  EXPECT_EQ(halves, std::vector<float>(3, 0));
  queue.submit("grid", grid);
  queue.synchronize();
  for (const float half : halves) EXPECT_GT(half, 0);
}

TEST_F(FloatModeTest, OfAGraphIsThatOfTheCapture) {
  const auto graph = std::make_shared<CommandGraph>();
  float kept = -1, flushed = -1, after = -1;
  graph->begin_capture(queue_);
  submit_half(kept);
  {
    const testing::Flushing flushing;
    submit_half(flushed);
  }
  graph->end_capture();
  {
    const testing::Flushing flushing;
    queue_.submit("replay", [graph] { graph->run(); });
  }
  submit_half(after);
  queue_.synchronize();
  EXPECT_GT(kept, 0);
  EXPECT_EQ(flushed, 0);
  EXPECT_GT(after, 0);
}

}  // namespace
}  // namespace loom
