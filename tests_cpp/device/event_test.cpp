// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/event.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/device/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/queues.h"
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

namespace loom {
namespace {

using testing::Gate;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class EventTest : public testing::QueueFixture {
 protected:
  // Before the queues' destruction and after the tests' bodies: commands refer to them.
  Gate gate_;
  Gate second_gate_;
};

TEST_F(EventTest, NeverRecordedCountsAsComplete) {
  const QueueEvent event;
  EXPECT_FALSE(event.recorded());
  EXPECT_TRUE(event.query());
  EXPECT_EQ(event.device(), -1);
  event.synchronize();
  event.block(queue_);
  EXPECT_EQ(queue_.submitted(), 0U);
}

TEST_F(EventTest, RecordedOnAnIdleQueueIsComplete) {
  QueueEvent event;
  event.record(queue_);
  EXPECT_TRUE(event.recorded());
  EXPECT_TRUE(event.query());
  EXPECT_EQ(event.device(), 0);
}

TEST_F(EventTest, RecordWithoutTimingSubmitsNothing) {
  QueueEvent event;
  event.record(queue_);
  EXPECT_EQ(queue_.submitted(), 0U);
}

TEST_F(EventTest, IsCompleteOnceTheWorkBeforeItHasRun) {
  QueueEvent event;
  submit_gate(queue_, gate_);
  event.record(queue_);
  EXPECT_FALSE(event.query());
  gate_.open();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, CoversOnlyWorkSubmittedBeforeRecord) {
  QueueEvent event;
  queue_.submit("nothing", nothing);
  event.record(queue_);
  submit_gate(queue_, gate_);
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_FALSE(queue_.idle());
  gate_.open();
  queue_.synchronize();
}

TEST_F(EventTest, RecordingAgainReplacesTheMark) {
  QueueEvent event;
  event.record(queue_);
  EXPECT_TRUE(event.query());
  submit_gate(queue_, gate_);
  event.record(queue_);
  EXPECT_FALSE(event.query());
  event.record(other_);
  EXPECT_TRUE(event.query());
  gate_.open();
  queue_.synchronize();
}

TEST_F(EventTest, BlockOrdersLaterCommandsOfAnotherQueue) {
  QueueEvent event;
  int value = 0;
  int seen = 0;
  submit_gate(queue_, gate_);
  queue_.submit("write", [&] { value = 5; });
  event.record(queue_);
  event.block(other_);
  other_.submit("read", [&] { seen = value; });
  gate_.open();
  other_.synchronize();
  EXPECT_EQ(seen, 5);
}

TEST_F(EventTest, BlockRefersToTheMarkAtTheTimeOfTheCall) {
  QueueEvent event;
  submit_gate(queue_, gate_);
  event.record(queue_);
  event.block(other_);
  submit_gate(queue_, second_gate_);
  event.record(queue_);
  gate_.open();
  other_.synchronize();  // would hang if it waited for the second mark
  EXPECT_FALSE(event.query());
  second_gate_.open();
  queue_.synchronize();
}

TEST_F(EventTest, BlockingTheQueueItWasRecordedOnSubmitsNothing) {
  QueueEvent event;
  const std::uint64_t position = submit_gate(queue_, gate_);
  event.record(queue_);
  event.block(queue_);
  EXPECT_EQ(queue_.submitted(), position);
  gate_.open();
  queue_.synchronize();
}

TEST_F(EventTest, MayBeDestroyedWhileItsMarkIsPending) {
  for (const EventTiming timing : {EventTiming::kDisabled, EventTiming::kEnabled}) {
    Gate gate;
    submit_gate(queue_, gate);
    {
      QueueEvent event(timing);
      event.record(queue_);
      event.block(other_);
    }
    gate.open();
    other_.synchronize();
    queue_.synchronize();
  }
}

TEST_F(EventTest, SynchronizeThrowsWhatTheWorkBeforeItThrew) {
  QueueEvent before;
  QueueEvent after;
  queue_.submit("nothing", nothing);
  before.record(queue_);
  queue_.submit("bad", [] { throw std::runtime_error("bad"); });
  after.record(queue_);
  EXPECT_THROW(after.synchronize(), Error);
  EXPECT_NO_THROW(before.synchronize());
  EXPECT_NO_THROW(after.synchronize());
}

TEST_F(EventTest, ElapsedTimeIsMeasuredOnTheWorker) {
  QueueEvent start(EventTiming::kEnabled);
  QueueEvent end(EventTiming::kEnabled);
  std::int64_t first = 0;
  std::int64_t last = 0;
  start.record(queue_);
  queue_.submit("first", [&] { first = now_ns(); });
  submit_gate(queue_, gate_);
  queue_.submit("last", [&] { last = now_ns(); });
  end.record(queue_);
  gate_.open();
  end.synchronize();
  EXPECT_GE(start.elapsed_ns(end), last - first);
  EXPECT_LE(end.elapsed_ns(start), first - last);
}

TEST_F(EventTest, ElapsedTimeWorksAcrossQueues) {
  QueueEvent start(EventTiming::kEnabled);
  QueueEvent end(EventTiming::kEnabled);
  start.record(queue_);
  start.block(other_);
  end.record(other_);
  end.synchronize();
  EXPECT_GE(start.elapsed_ns(end), 0);
}

TEST_F(EventTest, ElapsedTimeNeedsTiming) {
  QueueEvent timed(EventTiming::kEnabled);
  QueueEvent untimed;
  timed.record(queue_);
  untimed.record(queue_);
  queue_.synchronize();
  EXPECT_THAT([&] { (void)timed.elapsed_ns(untimed); },
              ThrowsMessage<Error>(HasSubstr("the end event to be created with timing")));
  EXPECT_THAT([&] { (void)untimed.elapsed_ns(timed); },
              ThrowsMessage<Error>(HasSubstr("the start event to be created with timing")));
}

TEST_F(EventTest, ElapsedTimeNeedsRecordedEvents) {
  const QueueEvent start(EventTiming::kEnabled);
  const QueueEvent end(EventTiming::kEnabled);
  EXPECT_THAT([&] { (void)start.elapsed_ns(end); },
              ThrowsMessage<Error>(HasSubstr("never recorded")));
}

TEST_F(EventTest, ElapsedTimeNeedsCompleteEvents) {
  QueueEvent start(EventTiming::kEnabled);
  QueueEvent end(EventTiming::kEnabled);
  start.record(queue_);
  submit_gate(queue_, gate_);
  end.record(queue_);
  start.synchronize();
  EXPECT_THAT([&] { (void)start.elapsed_ns(end); },
              ThrowsMessage<Error>(HasSubstr("synchronize it first")));
  gate_.open();
  queue_.synchronize();
  EXPECT_GE(start.elapsed_ns(end), 0);
}

TEST_F(EventTest, ReRecordedWhilePendingKeepsTheLastTime) {
  QueueEvent start(EventTiming::kEnabled);
  QueueEvent end(EventTiming::kEnabled);
  submit_gate(queue_, gate_);
  end.record(queue_);
  start.record(queue_);
  end.record(queue_);
  gate_.open();
  queue_.synchronize();
  EXPECT_GE(start.elapsed_ns(end), 0);
}

TEST_F(EventTest, MayBeUsedByManyThreads) {
  QueueEvent event(EventTiming::kEnabled);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 500; ++round) {
        Queue& mine = i % 2 == 0 ? queue_ : other_;
        event.record(mine);
        event.block(i % 2 == 0 ? other_ : queue_);
        (void)event.query();
        event.synchronize();
      }
    });
  }
  threads.clear();
  queue_.synchronize();
  other_.synchronize();
  EXPECT_TRUE(event.query());
}

}  // namespace
}  // namespace loom
