// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/check.h"
#include "loom/device/event.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/queues.h"
#include "support/stress.h"
#include "support/threads.h"
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

namespace loom {
namespace {

using ::testing::ExitedWithCode;

constexpr int kThreads = 8;
constexpr int kQueues = 4;

/// Four queues that share two cores, and a chain of plain (not atomic) values that hop from queue
/// to queue by events: a missing wait is a wrong value here and a race under ThreadSanitizer.
class Relay {
 public:
  /// Random work of one thread until the clock runs out.
  void run(int thread, const testing::StressClock& clock) {
    testing::Random random(static_cast<std::uint64_t>(thread) + 1);
    QueueEvent event(thread % 2 == 0 ? EventTiming::kDisabled : EventTiming::kEnabled);
    while (clock.running()) {
      hop_chain(random, event);
      if (random.one_in(8)) any_queue(random).synchronize();
      if (random.one_in(16)) use_cores(any_queue(random));
    }
  }

  void finish() {
    for (auto& queue : queues_) queue->synchronize();
    EXPECT_EQ(wrong_.load(), 0);
    EXPECT_EQ(hops_run_.load(), hops_submitted_.load());
    EXPECT_GT(hops_run_.load(), 0);
  }

 private:
  Queue& any_queue(testing::Random& random) { return *queues_[random.below(kQueues)]; }

  void hop_chain(testing::Random& random, QueueEvent& event) {
    const auto value = std::make_shared<int>(0);
    const int hops = 1 + static_cast<int>(random.below(10));
    for (int hop = 0; hop < hops; ++hop) {
      Queue& queue = any_queue(random);
      if (hop > 0) event.block(queue);
      queue.submit("hop", [this, value, hop] {
        if ((*value)++ != hop) wrong_.fetch_add(1);
        hops_run_.fetch_add(1);
      });
      hops_submitted_.fetch_add(1);
      event.record(queue);
    }
    if (random.one_in(4)) {
      event.synchronize();
      EXPECT_TRUE(event.query());
      EXPECT_EQ(*value, hops);
    }
  }

  void use_cores(Queue& queue) {
    queue.submit("grid", [this] {
      std::array<int, 32> blocks{};
      Queue::current()->cores().run(
          32, [&](std::int64_t block) { ++blocks[static_cast<std::size_t>(block)]; });
      for (const int count : blocks) {
        if (count != 1) wrong_.fetch_add(1);
      }
    });
  }

  Cores cores_{2};
  std::array<std::unique_ptr<Queue>, kQueues> queues_{
      std::make_unique<Queue>(QueueId{0, 0, 0}, cores_),
      std::make_unique<Queue>(QueueId{0, 0, 1}, cores_),
      std::make_unique<Queue>(QueueId{0, -1, 0}, cores_),
      std::make_unique<Queue>(QueueId{0, -1, 1}, cores_)};
  std::atomic<int> wrong_{0};
  std::atomic<long> hops_run_{0};
  std::atomic<long> hops_submitted_{0};
};

void run_relay() {
  Relay relay;
  const testing::StressClock clock;
  testing::on_threads(kThreads, [&](int thread) { relay.run(thread, clock); });
  relay.finish();
}

TEST(QueueStressTest, EventsOrderWorkAcrossQueuesUnderTheLoadOfEightThreads) { run_relay(); }

class QueueStressChildTest : public testing::ChildTest {};

TEST_F(QueueStressChildTest, EventsOrderWorkWhenEveryWaitSleeps) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_SPIN_US", "0", 1);
                run_relay();
              }),
              ExitedWithCode(0), "");
}

/// One command at a time, each woken from sleep or caught just before it.
void ping_pong() {
  Cores cores(1);
  Queue queue(QueueId{0, 0, 0}, cores);
  int ran = 0;
  const int rounds = testing::scaled(20'000);
  for (int round = 1; round <= rounds; ++round) {
    queue.submit("note", [&ran] { ++ran; });
    queue.synchronize();
    ASSERT_EQ(ran, round);
  }
}

TEST(QueueStressTest, NoCommandIsSleptThrough) { ping_pong(); }

TEST_F(QueueStressChildTest, NoCommandIsSleptThroughWithoutSpinning) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_SPIN_US", "0", 1);
                ping_pong();
              }),
              ExitedWithCode(0), "");
}

TEST(QueueStressTest, EveryErrorIsThrownAtMostOnceWhileManySubmitAndWait) {
  Cores cores(1);
  Queue queue(QueueId{0, 0, 0}, cores);
  std::atomic<int> failed{0};
  std::atomic<int> thrown{0};
  const int rounds = testing::scaled(2'000);
  testing::on_threads(kThreads, [&](int thread) {
    testing::Random random(static_cast<std::uint64_t>(thread) + 100);
    for (int round = 0; round < rounds; ++round) {
      if (random.one_in(4)) {
        queue.submit("bad", [&failed] {
          failed.fetch_add(1);
          throw std::runtime_error("bad");
        });
      } else {
        queue.submit("good", [] {});
      }
      try {
        if (random.one_in(8)) queue.synchronize();
      } catch (const Error&) {
        thrown.fetch_add(1);
      }
    }
  });
  try {
    queue.synchronize();
  } catch (const Error&) {
    thrown.fetch_add(1);
  }
  EXPECT_GT(thrown.load(), 0);
  EXPECT_LE(thrown.load(), failed.load());
  EXPECT_NO_THROW(queue.synchronize());
}

}  // namespace
}  // namespace loom
