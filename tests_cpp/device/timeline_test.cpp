// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/timeline.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/queues.h"
#include "support/stress.h"
#include "support/threads.h"
#include <sys/resource.h>
#include <thread>

namespace loom {
namespace {

using ::testing::ExitedWithCode;

TEST(TimelineTest, StartsAtZeroWhichIsReached) {
  const Timeline timeline;
  EXPECT_EQ(timeline.completed(), 0U);
  EXPECT_TRUE(timeline.reached(0));
  EXPECT_FALSE(timeline.reached(1));
  timeline.wait(0);
}

TEST(TimelineTest, AdvanceReachesAllPositionsUpToIt) {
  Timeline timeline;
  timeline.advance(5);
  EXPECT_EQ(timeline.completed(), 5U);
  EXPECT_TRUE(timeline.reached(3));
  EXPECT_TRUE(timeline.reached(5));
  EXPECT_FALSE(timeline.reached(6));
}

TEST(TimelineTest, WaitSeesWhatWasWrittenBeforeAdvance) {
  Timeline timeline;
  int value = 0;
  std::jthread writer([&] {
    value = 42;
    timeline.advance(1);
  });
  timeline.wait(1);
  EXPECT_EQ(value, 42);
}

TEST(TimelineTest, WaitersForDifferentPositionsAreAllWoken) {
  Timeline timeline;
  testing::on_threads(5, [&](int index) {
    if (index > 0) {
      timeline.wait(static_cast<std::uint64_t>(index));
      EXPECT_TRUE(timeline.reached(static_cast<std::uint64_t>(index)));
    } else {
      for (std::uint64_t position = 1; position <= 4; ++position) timeline.advance(position);
    }
  });
}

TEST(TimelineTest, WaitUnlessReturnsOnceStoppedAndInterrupted) {
  const Timeline timeline;
  std::atomic<bool> stop{false};
  std::jthread waiter([&] { timeline.wait_unless(1, stop); });
  stop.store(true);
  timeline.interrupt();
  waiter.join();
  EXPECT_FALSE(timeline.reached(1));
}

TEST(TimelineTest, AnInterruptAloneStopsNobody) {
  Timeline timeline;
  std::atomic<bool> stop{false};
  std::atomic<bool> returned{false};
  std::jthread waiter([&] {
    timeline.wait_unless(1, stop);
    returned.store(true);
  });
  for (int i = 0; i < 100; ++i) timeline.interrupt();
  EXPECT_FALSE(returned.load());
  timeline.advance(1);
  waiter.join();
  EXPECT_TRUE(returned.load());
}

TEST(TimelineTest, HostWaitsCountsOnlyThoseThatHadToWait) {
  Timeline timeline;
  timeline.advance(1);
  const std::uint64_t before = Timeline::host_waits();
  timeline.wait(1);
  EXPECT_EQ(Timeline::host_waits(), before);
  std::jthread waiter([&] { timeline.wait(2); });
  while (Timeline::host_waits() == before) std::this_thread::yield();
  timeline.advance(2);
  waiter.join();
  EXPECT_EQ(Timeline::host_waits(), before + 1);
}

/// How often the calling thread has gone to sleep.
long sleeps() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

TEST(TimelineTest, AWaitLeavesNothingBehindThatWakesTheNextOneTooSoon) {
  Timeline timeline;
  long slept = 0;
  std::jthread waiter([&] {
    timeline.wait(1);
    const long before = sleeps();
    timeline.wait(3);
    slept = sleeps() - before;
  });
  for (std::uint64_t position = 1; position <= 3; ++position) {
    testing::wait_until_others_sleep();
    timeline.advance(position);
  }
  waiter.join();
  EXPECT_EQ(slept, 1);
}

/// Four waiters step through positions that one thread advances; every step may sleep.
void step_through_positions() {
  const std::uint64_t steps = static_cast<std::uint64_t>(testing::scaled(20'000));
  Timeline timeline;
  std::atomic<int> arrived{0};
  testing::on_threads(5, [&](int index) {
    for (std::uint64_t position = 1; position <= steps; ++position) {
      if (index > 0) {
        timeline.wait(position);
        arrived.fetch_add(1);
      } else {
        timeline.advance(position);
        // Every other step waits for everybody, so that waiters and the advance race each time.
        while (position % 2 == 0 && arrived.load() < static_cast<int>(4 * position)) {
          std::this_thread::yield();
        }
      }
    }
  });
  EXPECT_EQ(arrived.load(), static_cast<int>(4 * steps));
}

TEST(TimelineStressTest, NoWakeIsMissedWhenSpinning) { step_through_positions(); }

using TimelineChildTest = testing::ChildTest;

TEST_F(TimelineChildTest, NoWakeIsMissedWhenSleepingAtOnce) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_SPIN_US", "0", 1);
                step_through_positions();
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
