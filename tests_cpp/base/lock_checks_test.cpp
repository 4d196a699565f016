// SPDX-License-Identifier: BSD-3-Clause
// Compiled with LOOM_LOCK_CHECKS only.
#include "loom/base/lock_checks.h"

#include "loom/base/futex.h"
#include "loom/base/mutex.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include <atomic>
#include <cstdint>

namespace loom {
namespace {

// Each in a process of its own, which has seen no other order.
using LockChecksDeathTest = testing::ChildTest;

template <class... Locks>
void take(Locks&... locks) {
  (locks.lock(), ...);
  (locks.unlock(), ...);
}

/// Returns at once, as a wait for what has come already.
void wait_for_futex() {
  const std::atomic<std::uint32_t> word{1};
  futex_wait(word, 0);
}

TEST_F(LockChecksDeathTest, OneOrderEverywhereIsNotReported) {
  EXPECT_EXIT(testing::finish([] {
                Mutex first{"first"};
                Mutex second{"second"};
                Mutex third{"third"};
                for (int i = 0; i < 2; ++i) {
                  take(first, second);
                  take(second, third);
                  take(first, third);
                  take(third);
                }
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(LockChecksDeathTest, AReversedOrderIsReportedWithTheOtherOnesPlace) {
  EXPECT_DEATH(
      {
        Mutex first{"first"};
        Mutex second{"second"};
        take(first, second);
        take(second, first);
      },
      "two locks are taken in both orders\n"
      "  earlier: second was taken at .*lock_checks_test.cpp:[0-9:]+ while first was held.*\n"
      "  now: first is taken at .*lock_checks_test.cpp:[0-9:]+\n"
      "  held: second, taken at .*lock_checks_test.cpp:[0-9:]+");
}

TEST_F(LockChecksDeathTest, AnOrderThatComesRoundOverThreeLocksIsReported) {
  EXPECT_DEATH(
      {
        Mutex first{"first"};
        Mutex second{"second"};
        Mutex third{"third"};
        take(first, second);
        take(second, third);
        take(third, first);
      },
      "earlier: second was taken .*\n  earlier: third was taken .*\n  now: first is taken");
}

TEST_F(LockChecksDeathTest, TheOrderIsThatOfClassesNotOfObjects) {
  EXPECT_DEATH(
      {
        struct Owner {
          Owner() = default;
          Mutex outer{"outer"};
          Mutex inner{"inner"};
        };
        Owner one;
        Owner other;
        take(one.outer, one.inner);
        take(other.inner, other.outer);
      },
      "two locks are taken in both orders");
}

// Not in the macro, all of which is one place.
void take_in_both_orders() {
  Mutex first;
  Mutex second;
  take(first, second);
  take(second, first);
}

TEST_F(LockChecksDeathTest, LocksWithoutANameAreKnownByTheirPlace) {
  EXPECT_DEATH(take_in_both_orders(), "now: the lock of .*lock_checks_test.cpp:[0-9:]+ is taken");
}

TEST_F(LockChecksDeathTest, ALockThatIsHeldIsReportedBeforeItHangs) {
  EXPECT_DEATH(
      {
        Mutex mutex{"one"};
        take(mutex, mutex);
      },
      "a lock is taken by a thread that holds it");
}

TEST_F(LockChecksDeathTest, TwoLocksOfOneClassAreReported) {
  EXPECT_DEATH(
      {
        Mutex one{"class"};
        Mutex other{"class"};
        take(one, other);
      },
      "two locks of one class are held");
}

TEST_F(LockChecksDeathTest, ReadersAndWritersHaveOneOrder) {
  EXPECT_DEATH(
      {
        Mutex mutex{"mutex"};
        SharedMutex shared{"shared"};
        {
          SharedLock reads(shared);
          MutexLock lock(mutex);
        }
        MutexLock lock(mutex);
        ExclusiveLock writes(shared);
      },
      "now: shared is taken");
}

TEST_F(LockChecksDeathTest, ATriedLockHasNoOrder) {
  EXPECT_EXIT(testing::finish([] {
                Mutex first{"first"};
                Mutex second{"second"};
                take(first, second);
                MutexLock lock(second);
                ASSERT_TRUE(first.try_lock());
                first.unlock();
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(LockChecksDeathTest, AWaitUnderALockIsReported) {
  EXPECT_DEATH(
      {
        Mutex mutex{"held"};
        MutexLock lock(mutex);
        wait_for_futex();
      },
      "a thread waits for a futex while it holds a lock\n  held: held, taken at");
}

TEST_F(LockChecksDeathTest, AWaitForAConditionUnderAnotherLockIsReported) {
  EXPECT_DEATH(
      {
        Mutex outer{"outer"};
        Mutex inner{"inner"};
        CondVar changed;
        MutexLock lock(outer);
        MutexLock inner_lock(inner);
        changed.wait(inner);
      },
      "a thread waits for a condition while it holds a lock\n  held: outer");
}

TEST_F(LockChecksDeathTest, ALockMadeForItMayBeHeldInAWait) {
  EXPECT_EXIT(testing::finish([] {
                Mutex mutex("held", HeldInWaits::kAllowed);
                MutexLock lock(mutex);
                wait_for_futex();
              }),
              ::testing::ExitedWithCode(0), "");
}

TEST_F(LockChecksDeathTest, AWaitWithTheGilIsReported) {
  EXPECT_DEATH(
      {
        lock_checks::set_gil_probe([]() noexcept { return true; });
        wait_for_futex();
      },
      "a thread waits for a futex while it has the GIL");
}

TEST_F(LockChecksDeathTest, TakingTheGilUnderALockIsReported) {
  EXPECT_DEATH(
      {
        Mutex mutex{"held"};
        lock_checks::takes_gil();
        MutexLock lock(mutex);
        lock_checks::takes_gil();
      },
      "a thread takes the GIL while it holds a lock\n  held: held");
}

}  // namespace
}  // namespace loom
