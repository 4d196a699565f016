// SPDX-License-Identifier: BSD-3-Clause
// Host threads that wait, and run blocks meanwhile.
#include "loom/base/float_mode.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/device/scratch.h"

#include <gtest/gtest.h>

#include "support/affinity.h"
#include "support/child.h"
#include "support/queues.h"
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <latch>
#include <mutex>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace loom {
namespace {

constexpr std::int64_t kLong = 60'000'000'000;

/// Threads that ran a block.
class Runners {
 public:
  void note() {
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
  }
  [[nodiscard]] bool has(std::thread::id id) const {
    const std::lock_guard lock(mutex_);
    return threads_.count(id) != 0;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::thread::id> threads_;
};

/// Two cores whose helper stays in a block, until the end.
class CoresHostTest : public ::testing::Test {
 protected:
  CoresHostTest() {
    busy_ = std::thread([this] {
      cores_.run(2, [&](std::int64_t) {
        inside_.arrive_and_wait();
        end_.wait();
      });
    });
    inside_.wait();
  }
  ~CoresHostTest() override {
    end_.count_down();
    busy_.join();
  }

  /// Runs block(i) for two blocks at the same time, on a thread of its own and on this one.
  template <class Block>
  void run_with_host(Block&& block) {
    std::atomic<bool> done{false};
    std::thread publisher([&] {
      std::latch together(2);
      cores_.run(
          2,
          [&](std::int64_t) {
            together.arrive_and_wait();
            block();
          },
          0, RunBy::kAny);
      done = true;
    });
    EXPECT_TRUE(cores_.help_until([&] { return done.load(); }, kLong));
    publisher.join();
  }

  Cores cores_{2};
  const std::thread::id host_ = std::this_thread::get_id();

 private:
  std::latch inside_{2}, end_{1};  // blocks may still look at the first one when it is open
  std::thread busy_;
};

TEST(CoresHelpTest, IsDoneWithoutBlocks) {
  Cores cores(2);
  EXPECT_TRUE(cores.help_until([] { return true; }, 0));
  EXPECT_FALSE(cores.help_until([] { return false; }, 1'000));
}

TEST_F(CoresHostTest, AWaitingHostRunsBlocksOfAnyThread) {
  Runners runners;
  run_with_host([&] { runners.note(); });
  EXPECT_TRUE(runners.has(std::this_thread::get_id()));
}

const Scratch kBlockMemory;

/// A thread-local object whose destructor waits for the device.
struct WaitsAtItsEnd {
  std::function<void()> wait;
  ~WaitsAtItsEnd() {
    if (wait) wait();
  }
};

// The object is younger than the thread's first wait, and outlives what later blocks have made.
TEST_F(CoresHostTest, AThreadRunsNoBlocksOnceWhatBlocksHaveMadeIsDestroyed) {
  constexpr std::chrono::milliseconds kPatience{200};
  std::atomic<bool> ran_late{false};
  std::thread([&] {
    run_with_host([] {});
    thread_local WaitsAtItsEnd object;
    object.wait = [&, host = std::this_thread::get_id()] {
      std::atomic<bool> done{false};
      std::thread publisher([&] {
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        const auto block = [&](std::int64_t) {
          if (std::this_thread::get_id() == host) ran_late = true;
          while (!ran_late && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();  // leaves the other block to the host
          }
        };
        cores_.run(2, block, 0, RunBy::kAny);
        done = true;
      });
      (void)cores_.help_until([&] { return done.load(); }, kLong);
      publisher.join();
    };
    run_with_host([] { (void)kBlockMemory.get<float>(100); });
  }).join();
  EXPECT_FALSE(ran_late);
}

TEST(CoresHelpTest, AWaitingHostLeavesBlocksOfTheDeviceAlone) {
  Cores cores(2);
  std::atomic<bool> done{false};
  Runners runners;
  std::thread publisher([&] {
    for (int i = 0; i < 100; ++i) cores.run(64, [&](std::int64_t) { runners.note(); });
    done = true;
  });
  while (!cores.help_until([&] { return done.load(); }, kLong)) {
  }
  EXPECT_FALSE(runners.has(std::this_thread::get_id()));
  publisher.join();
}

TEST_F(CoresHostTest, AnExceptionOfAHostsBlockIsThePublishers) {
  const std::thread::id host = std::this_thread::get_id();
  std::atomic<bool> thrown{false}, done{false};
  std::thread publisher([&] {
    std::latch together(2);
    try {
      cores_.run(
          2,
          [&](std::int64_t) {
            together.arrive_and_wait();
            if (std::this_thread::get_id() == host) throw std::runtime_error("of the host");
          },
          0, RunBy::kAny);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    done = true;
  });
  EXPECT_NO_THROW(cores_.help_until([&] { return done.load(); }, kLong));
  publisher.join();
  EXPECT_TRUE(thrown);
}

#if defined(__SSE__)
TEST_F(CoresHostTest, BlocksRunInThePublishersFloatingPointMode) {
  constexpr unsigned kFlush = 0x8040;
  const FloatMode before = FloatMode::current();
  std::atomic<bool> done{false};
  std::atomic<int> flushing{0};
  std::thread publisher([&] {
    std::latch together(2);
    cores_.run(
        2,
        [&](std::int64_t) {
          together.arrive_and_wait();
          flushing.fetch_add((_mm_getcsr() & kFlush) == kFlush ? 1 : 0);
        },
        0, RunBy::kAny);
    done = true;
  });
  _mm_setcsr(_mm_getcsr() | kFlush);  // after the publisher has begun with the mode of before
  cores_.help_until([&] { return done.load(); }, kLong);
  publisher.join();
  EXPECT_EQ(flushing, 0);
  EXPECT_EQ(_mm_getcsr() & kFlush, kFlush);
  before.set();
}
#endif

TEST_F(CoresHostTest, AHostLeavesAGridWhenItIsDone) {
  std::atomic<bool> done{false}, left{false};
  std::thread publisher([&] {
    cores_.run(
        1000,
        [&](std::int64_t) {
          // As soon as the host is inside, what it waits for is there; others' blocks last longer.
          if (std::this_thread::get_id() == host_) {
            done = true;
          } else {
            while (!left) std::this_thread::yield();
          }
        },
        0, RunBy::kAny);
  });
  EXPECT_TRUE(cores_.help_until([&] { return done.load(); }, kLong));
  left = true;
  publisher.join();
}

TEST_F(CoresHostTest, AHostMakesRoomForAGridOfTheDeviceThatWantsAllCores) {
  std::latch inside(1), end(1);
  std::thread publisher([&] {
    cores_.run(2, [&](std::int64_t block) {
      if (block == 0) inside.count_down();
      end.wait();
    });
  });
  inside.wait();  // nobody is there for the other block
  constexpr std::int64_t kForever = 60 * kLong;
  EXPECT_FALSE(cores_.help_until([] { return false; }, kForever));
  end.count_down();
  publisher.join();
}

TEST(CoresHelpTest, GridsOfTheDeviceDoNotKeepAHostAwake) {
  Cores cores(2);
  std::atomic<bool> end{false};
  std::thread publisher([&] {
    while (!end) cores.run(2, [](std::int64_t) {});
  });
  EXPECT_FALSE(cores.help_until([] { return false; }, 1'000'000));
  end = true;
  publisher.join();
}

TEST(CoresHelpTest, AHostOnThePublishersProcessorLeavesAGridThatHasAHelper) {
  Cores cores(2);
  const int cpu = sched_getcpu();
  std::atomic<int> inside{0};
  std::atomic<bool> left{false};
  Runners runners;
  std::thread publisher([&] {
    testing::bind_to(cpu);
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    cores.run(
        8,
        [&](std::int64_t) {
          runners.note();
          ++inside;
          while (!left && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
        },
        0, RunBy::kAny);
  });
  std::thread host([&] {
    testing::bind_to(cpu);
    while (inside < 2) std::this_thread::yield();
    constexpr std::int64_t kSecond = 1'000'000'000;
    EXPECT_FALSE(cores.help_until([] { return false; }, kSecond));
    EXPECT_FALSE(runners.has(std::this_thread::get_id()));
    left = true;
  });
  host.join();
  publisher.join();
}

TEST(CoresHelpTest, OneCoreOnlySpins) {
  Cores cores(1);
  int looks = 0;
  EXPECT_TRUE(cores.help_until([&] { return ++looks == 100; }, kLong));
}

TEST(CoresHelpTest, WhoWaitsForAQueueHelps) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "a helper goes first there";
  Cores cores(2);
  Queue queue({0, 0, 0}, cores);
  Runners runners;
  const std::thread::id host = std::this_thread::get_id();
  // Others keep at their block for a while, so that some are left. A wait looks for blocks only for
  // a little while before it sleeps: it is in time for one of these grids.
  const auto block = [&](std::int64_t) {
    runners.note();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    while (!runners.has(host) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  for (int i = 0; i < 1000 && !runners.has(host); ++i) {
    queue.submit("grid", [&] { cores.run(16, block, 0, RunBy::kAny); });
    queue.synchronize();
  }
  EXPECT_TRUE(runners.has(host));
}

TEST(CoresHelpTest, EveryBlockRunsOnceBesideManyHosts) {
  constexpr int kHosts = 3, kBlocks = 37;
  Cores cores(3);
  std::atomic<bool> done{false};
  std::vector<std::thread> hosts;
  for (int i = 0; i < kHosts; ++i) {
    hosts.emplace_back([&] {
      while (!done) cores.help_until([&] { return done.load(); }, 10'000);
    });
  }
  std::vector<std::thread> publishers;
  for (int p = 0; p < 2; ++p) {
    publishers.emplace_back([&, p] {
      const RunBy by = p == 0 ? RunBy::kAny : RunBy::kDevice;
      std::vector<int> runs(kBlocks, 0);
      for (int round = 1; round <= 500; ++round) {
        cores.run(
            kBlocks, [&](std::int64_t block) { ++runs[static_cast<std::size_t>(block)]; }, p, by);
        ASSERT_EQ(runs, std::vector<int>(kBlocks, round));
      }
    });
  }
  for (std::thread& publisher : publishers) publisher.join();
  done = true;
  for (std::thread& host : hosts) host.join();
}

/// Counts the blocks of grids for any thread that this thread runs while it waits for them.
int blocks_of_waiting_host(Cores& cores) {
  const std::thread::id host = std::this_thread::get_id();
  std::atomic<bool> done{false};
  std::atomic<int> ran{0};
  std::thread publisher([&] {
    for (int i = 0; i < 200; ++i) {
      cores.run(
          16, [&](std::int64_t) { ran += std::this_thread::get_id() == host ? 1 : 0; }, 0,
          RunBy::kAny);
    }
    done = true;
  });
  while (!cores.help_until([&] { return done.load(); }, kLong)) {
  }
  publisher.join();
  return ran;
}

struct WaitsAtTheEnd {
  explicit WaitsAtTheEnd(Cores& used) : cores(used) {}
  ~WaitsAtTheEnd() { std::_Exit(blocks_of_waiting_host(cores) == 0 ? 0 : 1); }
  Cores& cores;
};

using CoresHostChildTest = testing::ChildTest;

// Blocks use thread-local memory, which is gone by then.
TEST_F(CoresHostChildTest, AStaticObjectThatWaitsAtTheEndRunsNoBlocks) {
  EXPECT_EXIT(
      {
        static Cores cores(2);
        (void)blocks_of_waiting_host(cores);
        static const WaitsAtTheEnd at_the_end(cores);
        std::exit(2);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
