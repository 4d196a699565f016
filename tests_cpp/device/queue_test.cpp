// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/queue.h"

#include "loom/base/options.h"
#include "loom/device/unheld_submissions.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <memory>
#include <thread>
#include <vector>

namespace loom {
namespace {

using testing::Gate;
using QueueTest = testing::QueueFixture;

TEST_F(QueueTest, CommandsRunInTheOrderOfTheirSubmission) {
  std::vector<int> ran;
  for (int i = 0; i < 10'000; ++i) queue_.submit("note", [&ran, i] { ran.push_back(i); });
  queue_.synchronize();
  ASSERT_EQ(ran.size(), 10'000U);
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST_F(QueueTest, PositionsCountCommandsFromOne) {
  EXPECT_EQ(queue_.submitted(), 0U);
  EXPECT_EQ(queue_.submit("nothing", nothing), 1U);
  EXPECT_EQ(queue_.submit("nothing", nothing), 2U);
  EXPECT_EQ(queue_.submitted(), 2U);
  queue_.synchronize();
  EXPECT_EQ(queue_.timeline().completed(), 2U);
}

TEST_F(QueueTest, AQueueWithoutCommandsIsIdleAndSynchronized) {
  EXPECT_TRUE(queue_.idle());
  queue_.synchronize();
}

TEST_F(QueueTest, SubmitReturnsBeforeTheCommandHasRun) {
  Gate gate;
  submit_gate(queue_, gate);
  EXPECT_FALSE(queue_.idle());
  gate.open();
  queue_.synchronize();
  EXPECT_TRUE(queue_.idle());
}

TEST_F(QueueTest, SynchronizeUpToAPositionDoesNotWaitForLaterCommands) {
  Gate gate;
  const std::uint64_t first = queue_.submit("nothing", nothing);
  submit_gate(queue_, gate);
  queue_.synchronize(first);
  EXPECT_FALSE(queue_.idle());
  gate.open();
  queue_.synchronize();
}

TEST_F(QueueTest, APositionIsReachedAfterTheCallableIsDestroyed) {
  auto token = std::make_shared<int>();
  for (int i = 0; i < 100; ++i) {
    queue_.submit("hold", [token] {});
    queue_.synchronize();
    ASSERT_EQ(token.use_count(), 1);
  }
}

TEST_F(QueueTest, CurrentIsTheQueueOnItsWorkerAndNullElsewhere) {
  Queue* on_first = nullptr;
  Queue* on_second = nullptr;
  queue_.submit("note", [&] { on_first = Queue::current(); });
  other_.submit("note", [&] { on_second = Queue::current(); });
  queue_.synchronize();
  other_.synchronize();
  EXPECT_EQ(on_first, &queue_);
  EXPECT_EQ(on_second, &other_);
  EXPECT_EQ(Queue::current(), nullptr);
}

TEST_F(QueueTest, ACommandMaySubmitToItsOwnQueue) {
  std::vector<int> ran;
  queue_.submit("outer", [&] {
    queue_.submit("inner", [&] { ran.push_back(2); });
    ran.push_back(1);
  });
  queue_.synchronize(2);
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST_F(QueueTest, ManyProducersKeepTheirOwnOrder) {
  constexpr int kProducers = 8;
  constexpr int kEach = 5'000;
  std::vector<int> next(kProducers, 0);
  testing::on_threads(kProducers, [&](int producer) {
    for (int i = 0; i < kEach; ++i) {
      queue_.submit("note", [&next, producer, i] {
        EXPECT_EQ(next[static_cast<std::size_t>(producer)]++, i);
      });
    }
  });
  queue_.synchronize();
  EXPECT_EQ(next, std::vector<int>(kProducers, kEach));
  EXPECT_EQ(queue_.submitted(), static_cast<std::uint64_t>(kProducers) * kEach);
}

TEST_F(QueueTest, ASubmitterThatIsFarAheadIsHeld) {
  Gate gate;
  submit_gate(queue_, gate);
  const std::uint64_t waits = Queue::host_waits();
  std::jthread submitter([&] {
    for (std::uint64_t i = 0; i < options().queue_depth; ++i) queue_.submit("nothing", nothing);
  });
  while (Queue::host_waits() == waits) std::this_thread::yield();
  EXPECT_EQ(queue_.submitted(), options().queue_depth);
  gate.open();
  submitter.join();
  EXPECT_EQ(queue_.submitted(), options().queue_depth + 1);
  queue_.synchronize();
}

TEST_F(QueueTest, UnheldSubmissionsAreNotHeld) {
  Gate gate;
  submit_gate(queue_, gate);
  const std::uint64_t waits = Queue::host_waits();
  {
    const UnheldSubmissions unheld;
    for (std::uint64_t i = 0; i < options().queue_depth; ++i) queue_.submit("nothing", nothing);
    queue_.wait_for_room();
  }
  EXPECT_EQ(Queue::host_waits(), waits);
  std::jthread waiter([&] { queue_.wait_for_room(); });
  while (Queue::host_waits() == waits) std::this_thread::yield();
  gate.open();
  waiter.join();
  queue_.synchronize();
}

TEST_F(QueueTest, ACommandThatSubmitsFarAheadIsNotHeld) {
  queue_.submit("burst", [&] {
    for (std::uint64_t i = 0; i < options().queue_depth + 10; ++i)
      queue_.submit("nothing", nothing);
  });
  queue_.synchronize(1);
  queue_.synchronize();
  EXPECT_EQ(queue_.timeline().completed(), options().queue_depth + 11);
}

TEST_F(QueueTest, WaitForHoldsLaterCommandsUntilTheOtherQueueIsThere) {
  Gate gate;
  int value = 0;
  int seen = 0;
  submit_gate(queue_, gate);
  const std::uint64_t written = queue_.submit("write", [&] { value = 7; });
  other_.wait_for(queue_.timeline(), written);
  other_.submit("read", [&] { seen = value; });
  EXPECT_FALSE(other_.idle());
  gate.open();
  other_.synchronize();
  EXPECT_EQ(seen, 7);
}

TEST_F(QueueTest, WaitForDoesNotHoldEarlierCommands) {
  Timeline timeline;
  const std::uint64_t before = queue_.submit("nothing", nothing);
  queue_.wait_for(timeline, 1);
  queue_.synchronize(before);
  EXPECT_FALSE(queue_.idle());
  timeline.advance(1);
  queue_.synchronize();
}

TEST_F(QueueTest, WaitForWhatIsReachedSubmitsNothing) {
  const std::uint64_t position = other_.submit("nothing", nothing);
  other_.synchronize();
  queue_.wait_for(other_.timeline(), position);
  EXPECT_EQ(queue_.submitted(), 0U);
}

TEST_F(QueueTest, WaitForItsOwnTimelineSubmitsNothing) {
  Gate gate;
  const std::uint64_t position = submit_gate(queue_, gate);
  queue_.wait_for(queue_.timeline(), position);
  EXPECT_EQ(queue_.submitted(), position);
  gate.open();
  queue_.synchronize();
}

TEST_F(QueueTest, HostWaitsCountsOneForEachWaitOfAHostThread) {
  Gate gate;
  const std::uint64_t before = Queue::host_waits();
  queue_.synchronize();
  EXPECT_EQ(Queue::host_waits(), before);
  submit_gate(queue_, gate);
  std::jthread waiter([&] { queue_.synchronize(); });
  while (Queue::host_waits() == before) std::this_thread::yield();
  gate.open();
  waiter.join();
  EXPECT_EQ(Queue::host_waits(), before + 1);
}

TEST_F(QueueTest, WaitsOfWorkersAreNotHostWaits) {
  Timeline timeline;
  const std::uint64_t before = Queue::host_waits();
  queue_.wait_for(timeline, 1);
  queue_.submit("wait", [&] { timeline.wait(2); });
  timeline.advance(1);
  timeline.advance(2);
  while (!queue_.idle()) std::this_thread::yield();
  EXPECT_EQ(Queue::host_waits(), before);
}

TEST_F(QueueTest, DestructionInterruptsAWaitAndDropsWhatIsQueued) {
  Timeline never;
  auto token = std::make_shared<int>();
  bool ran = false;
  {
    Queue queue(QueueId{0, 0, 9}, cores_);
    const std::uint64_t first = queue.submit("nothing", nothing);
    queue.wait_for(never, 1);
    for (int i = 0; i < 1000; ++i) queue.submit("late", [&ran, token] { ran = true; });
    queue.synchronize(first);
    testing::wait_until_others_sleep();
    EXPECT_EQ(token.use_count(), 1001);
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(QueueTest, AnUnusedQueueStartsNoThread) {
  const int threads = testing::count_threads();
  const Queue queue(QueueId{0, 0, 8}, cores_);
  EXPECT_TRUE(queue.idle());
  EXPECT_EQ(testing::count_threads(), threads);
}

}  // namespace
}  // namespace loom
