// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/futex.h"

#include <gtest/gtest.h>

#include "support/affinity.h"
#include <atomic>
#include <sched.h>
#include <thread>

namespace loom {
namespace {

TEST(FutexTest, DoesNotSleepOnAChangedWord) {
  std::atomic<std::uint32_t> word{1};
  futex_wait(word, 0);  // would never return
  EXPECT_EQ(word.load(), 1U);
}

TEST(FutexTest, WakesASleeper) {
  std::atomic<std::uint32_t> word{0};
  std::jthread sleeper([&] {
    while (word.load() == 0) futex_wait(word, 0);
  });
  word.store(1);
  futex_wake(word);
}

TEST(SpinTest, ReturnsAtOnceWhenDone) {
  EXPECT_TRUE(spin_until([] { return true; }, 0));
}

TEST(SpinTest, GivesUpAtTheLimit) {
  const std::int64_t start = now_ns();
  EXPECT_FALSE(spin_until([] { return false; }, 20'000));
  EXPECT_GE(now_ns() - start, 20'000);
}

TEST(SpinTest, SeesAnotherThreadsWrite) {
  std::atomic<bool> flag{false};
  std::jthread writer([&] { flag.store(true); });
  EXPECT_TRUE(spin_until([&] { return flag.load(); }, 60'000'000'000));
}

// The time is that of a spin which would make offers to its end.
TEST(SpinTest, GivesUpBesideAThreadThatKeepsWhatItIsOffered) {
  std::thread([] {
    const int cpu = sched_getcpu();
    testing::bind_to(cpu);
    std::atomic<bool> stop{false};
    std::jthread greedy([&] {
      while (!stop.load(std::memory_order_relaxed)) cpu_relax();
    });
    constexpr std::int64_t kMinute = 60'000'000'000;
    const std::int64_t start = now_ns();
    EXPECT_FALSE(spin_until([] { return false; }, kMinute));
    EXPECT_TRUE(CoreOffer::refused(now_ns()));
    EXPECT_LT(now_ns() - start, kMinute);
    const std::int64_t again = now_ns();
    EXPECT_FALSE(spin_until([] { return false; }, 20'000, 20'000));
    EXPECT_GE(now_ns() - again, 20'000);
    CoreOffer::forgive();
    EXPECT_FALSE(CoreOffer::refused(now_ns()));
    stop = true;
  }).join();
}

}  // namespace
}  // namespace loom
