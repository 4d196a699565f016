// SPDX-License-Identifier: BSD-3-Clause
// Queues that wait for each other by turns, and waits that grow.
#include "loom/device/event.h"
#include "loom/device/open_wait.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <cstdint>
#include <thread>
#include <vector>

namespace loom {
namespace {

using testing::Gate;
using QueueWaitsTest = testing::QueueFixture;

TEST_F(QueueWaitsTest, WaitsWithNothingBetweenAreOneCommand) {
  Timeline timeline;
  for (std::uint64_t position = 1; position <= 10; ++position) {
    queue_.wait_for(timeline, position);
  }
  EXPECT_EQ(queue_.submitted(), 1U);
  timeline.advance(9);
  testing::wait_until_others_sleep();
  EXPECT_FALSE(queue_.idle());
  timeline.advance(10);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, AnEarlierPositionDoesNotShortenAWait) {
  Timeline timeline;
  queue_.wait_for(timeline, 2);
  queue_.wait_for(timeline, 1);
  timeline.advance(1);
  testing::wait_until_others_sleep();
  EXPECT_FALSE(queue_.idle());
  timeline.advance(2);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, WhatFollowsAWaitIsNotHeldUpByALaterOne) {
  Timeline timeline;
  queue_.wait_for(timeline, 1);
  const std::uint64_t between = queue_.submit("nothing", nothing);
  queue_.wait_for(timeline, 2);
  timeline.advance(1);
  queue_.synchronize(between);
  EXPECT_FALSE(queue_.idle());
  timeline.advance(2);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, AnEventBehindAWaitIsNotHeldUpByALaterOne) {
  Timeline timeline;
  QueueEvent event;
  queue_.wait_for(timeline, 1);
  event.record(queue_);
  queue_.wait_for(timeline, 2);
  timeline.advance(1);
  event.synchronize();
  EXPECT_FALSE(queue_.idle());
  timeline.advance(2);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, WaitsForSeveralTimelinesAreKept) {
  Timeline first, second;
  queue_.wait_for(first, 1);
  queue_.wait_for(second, 1);
  queue_.wait_for(first, 2);
  first.advance(2);
  testing::wait_until_others_sleep();
  EXPECT_FALSE(queue_.idle());
  second.advance(1);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, AWaitIsOpenUntilSomethingFollows) {
  Timeline timeline;
  queue_.wait_for(timeline, 1);
  queue_.with_open([](OpenCommand* open) { EXPECT_NE(OpenWait::of(open), nullptr); });
  queue_.submit("nothing", nothing);
  queue_.with_open([](OpenCommand* open) { EXPECT_EQ(open, nullptr); });
  timeline.advance(1);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, QueuesThatTakeTurnsSubmitNoWaitsForEachOther) {
  Gate gate;
  submit_gate(other_, gate);
  for (int turn = 0; turn < 10; ++turn) {
    wait_for_all_of(other_, queue_);
    const std::uint64_t done = other_.submit("exchange", nothing);
    queue_.wait_for(other_.timeline(), done);
  }
  EXPECT_EQ(queue_.submitted(), 1U);
  EXPECT_EQ(other_.submitted(), 11U);
  gate.open();
  queue_.synchronize();
  EXPECT_TRUE(other_.idle());
}

TEST_F(QueueWaitsTest, AWaitForAllWaitsForWhatIsBeforeAWaitForItself) {
  Gate gate, other_gate;
  int value = 0, seen = 0;
  const std::uint64_t begun = submit_gate(other_, other_gate);
  submit_gate(queue_, gate);
  queue_.submit("write", [&] { value = 7; });
  queue_.wait_for(other_.timeline(), begun);
  wait_for_all_of(other_, queue_);
  other_.submit("read", [&] { seen = value; });
  other_gate.open();
  testing::wait_until_others_sleep();
  EXPECT_FALSE(other_.idle());
  gate.open();
  other_.synchronize();
  EXPECT_EQ(seen, 7);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, AWaitForAllWaitsForWhatWaitsForOthers) {
  Timeline timeline;
  queue_.wait_for(timeline, 1);
  wait_for_all_of(other_, queue_);
  other_.submit("nothing", nothing);
  queue_.wait_for(timeline, 2);
  testing::wait_until_others_sleep();
  EXPECT_FALSE(other_.idle());
  timeline.advance(1);
  other_.synchronize();
  timeline.advance(2);
  queue_.synchronize();
}

TEST_F(QueueWaitsTest, RandomTurnsKeepTheirOrder) {
  constexpr int kTurns = 20'000;
  std::vector<int> log;
  log.reserve(kTurns);
  std::uint64_t state = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    if ((state >> 40) % 3 != 0) queue_.submit("note", [&log, turn] { log.push_back(-turn); });
    wait_for_all_of(other_, queue_);
    const std::uint64_t done = other_.submit("note", [&log, turn] { log.push_back(turn); });
    queue_.wait_for(other_.timeline(), done);
  }
  queue_.synchronize();
  int last = -1;
  for (const int turn : log) {
    const int at = turn < 0 ? -turn : turn;
    EXPECT_GE(at, last);
    last = at;
  }
}

}  // namespace
}  // namespace loom
