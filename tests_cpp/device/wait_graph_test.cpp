// SPDX-License-Identifier: BSD-3-Clause
// Compiled with LOOM_LOCK_CHECKS only.
#include "loom/device/wait_graph.h"

#include "loom/device/device.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/gate.h"
#include <cstdint>

namespace loom {
namespace {

using WaitGraphDeathTest = testing::ChildTest;

struct TwoQueues {
  Queue& one = device(0).default_queue();
  Queue& other = device(0).pool_queue(0, 0);
};

// A position that is taken while a wait is open there: what waits for it may be what that waits
// for.
TEST_F(WaitGraphDeathTest, TwoQueuesThatWaitForEachOtherAreReported) {
  EXPECT_DEATH(
      {
        static testing::Gate gate;
        TwoQueues queues;
        const std::uint64_t first = submit_gate(queues.other, gate);
        queues.one.wait_for(queues.other.timeline(), first);
        queues.other.wait_for(queues.one.timeline(), queues.one.submitted());
        queues.one.wait_for(queues.other.timeline(), queues.other.submitted());
      },
      "queues wait for each other in a circle\n"
      "  command 1 of queue .* waits for command 2 of queue .*\n"
      "  command 2 of queue .* waits for command 1 of queue");
}

TEST_F(WaitGraphDeathTest, ACommandThatWaitsForWhatWaitsForItIsReported) {
  EXPECT_DEATH(
      {
        static testing::Gate gate;
        TwoQueues queues;
        const std::uint64_t first = queues.one.submit("waits", [&] {
          gate.pass();
          queues.other.timeline().wait(1);
        });
        queues.other.wait_for(queues.one.timeline(), first);
        gate.open();
        queues.one.synchronize();
      },
      "queues wait for each other in a circle");
}

TEST_F(WaitGraphDeathTest, QueuesThatTakeTurnsAreNotReported) {
  EXPECT_EXIT(testing::finish([] {
                TwoQueues queues;
                for (int turn = 0; turn < 100; ++turn) {
                  queues.one.submit("nothing", [] {});
                  queues.other.wait_for(queues.one.timeline(), queues.one.seal());
                  queues.other.submit("nothing", [] {});
                  queues.one.wait_for(queues.other.timeline(), queues.other.seal());
                }
                queues.one.synchronize();
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(WaitGraphDeathTest, AWaitForTheDeviceUnderALockIsReported) {
  EXPECT_DEATH(
      {
        Mutex mutex{"held"};
        Queue& queue = device(0).default_queue();
        const std::uint64_t position = queue.submit("nothing", [] {});
        MutexLock lock(mutex);
        queue.timeline().wait(position);
      },
      "a thread waits for a timeline while it holds a lock\n  held: held");
}

}  // namespace
}  // namespace loom
