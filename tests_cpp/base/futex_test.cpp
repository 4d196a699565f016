// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/futex.h"

#include <gtest/gtest.h>

#include "support/affinity.h"
#include <atomic>
#include <sched.h>
#include <thread>

namespace loom {
namespace {

constexpr std::int64_t kMinute = 60'000'000'000;

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
  EXPECT_FALSE(spin_until([] { return false; }, 20'000, 20'000));
  EXPECT_GE(now_ns() - start, 20'000);
}

TEST(SpinTest, SeesAnotherThreadsWrite) {
  std::atomic<bool> flag{false};
  std::jthread writer([&] { flag.store(true); });
  EXPECT_TRUE(spin_until([&] { return flag.load(); }, kMinute, kMinute));
}

TEST(SpinTest, EndsSoonBesideAThreadThatKeepsTheCoreItIsOffered) {
  std::thread([] {
    testing::bind_to(sched_getcpu());
    std::atomic<bool> stop{false};
    std::jthread greedy([&] {
      while (!stop.load(std::memory_order_relaxed)) cpu_relax();
    });
    const std::int64_t start = now_ns();
    // Offers to its end would make it last a minute.
    EXPECT_FALSE(spin_until([] { return false; }, kMinute, 0));
    EXPECT_LT(now_ns() - start, kMinute);
    EXPECT_TRUE(CoreOffers::taken(start));
    // Without offers it lasts as long as it is told to.
    EXPECT_FALSE(spin_until([] { return false; }, kMinute, 20'000));
    EXPECT_GE(now_ns() - start, 20'000);
    CoreOffers::forgive();
    EXPECT_FALSE(CoreOffers::taken(start));
    stop = true;
  }).join();
}

}  // namespace
}  // namespace loom
