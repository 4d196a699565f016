// SPDX-License-Identifier: BSD-3-Clause
// Host threads that wait, and run blocks meanwhile.
#include "loom/base/float_mode.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
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

TEST(CoresHostTest, IsDoneWithoutBlocks) {
  Cores cores(2);
  EXPECT_TRUE(cores.help_until([] { return true; }, 0));
  EXPECT_FALSE(cores.help_until([] { return false; }, 1'000));
}

TEST(CoresHostTest, AWaitingHostRunsBlocksOfAnyThread) {
  Cores cores(2);
  std::atomic<bool> done{false};
  Runners runners;
  std::thread publisher([&] {
    // Three threads must be inside at once: the publisher, the only helper, and the host.
    std::latch together(3);
    cores.run(
        3,
        [&](std::int64_t) {
          runners.note();
          together.arrive_and_wait();
        },
        0, RunBy::kAny);
    done = true;
  });
  EXPECT_TRUE(cores.help_until([&] { return done.load(); }, kLong));
  EXPECT_TRUE(runners.has(std::this_thread::get_id()));
  publisher.join();
}

TEST(CoresHostTest, AWaitingHostLeavesBlocksOfTheDeviceAlone) {
  Cores cores(2);
  std::atomic<bool> done{false};
  Runners runners;
  std::thread publisher([&] {
    for (int i = 0; i < 100; ++i) cores.run(64, [&](std::int64_t) { runners.note(); });
    done = true;
  });
  EXPECT_TRUE(cores.help_until([&] { return done.load(); }, kLong));
  EXPECT_FALSE(runners.has(std::this_thread::get_id()));
  publisher.join();
}

TEST(CoresHostTest, AnExceptionOfAHostsBlockIsThePublishers) {
  Cores cores(2);
  const std::thread::id host = std::this_thread::get_id();
  std::atomic<bool> done{false}, thrown{false};
  std::thread publisher([&] {
    std::latch together(3);
    try {
      cores.run(
          3,
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
  EXPECT_NO_THROW(cores.help_until([&] { return done.load(); }, kLong));
  publisher.join();
  EXPECT_TRUE(thrown);
}

#if defined(__SSE__)
TEST(CoresHostTest, BlocksRunInThePublishersFloatingPointMode) {
  Cores cores(2);
  const FloatMode before = FloatMode::current();
  _mm_setcsr(_mm_getcsr() | 0x8040);  // this thread flushes denormal numbers
  std::atomic<bool> done{false};
  std::atomic<int> flushing{0};
  std::thread publisher([&] {
    before.set();
    std::latch together(3);
    cores.run(
        3,
        [&](std::int64_t) {
          together.arrive_and_wait();
          if ((_mm_getcsr() & 0x8040) != 0) flushing.fetch_add(1);
        },
        0, RunBy::kAny);
    done = true;
  });
  EXPECT_TRUE(cores.help_until([&] { return done.load(); }, kLong));
  publisher.join();
  EXPECT_EQ(flushing, 0);
  EXPECT_EQ(_mm_getcsr() & 0x8040U, 0x8040U) << "the host's own mode is back";
  before.set();
}
#endif

TEST(CoresHostTest, WhoWaitsForAQueueHelps) {
  Cores cores(2);
  Queue queue({0, 0, 0}, cores);
  Runners runners;
  // A wait looks for blocks only for a little while before it sleeps: some come in time.
  for (int i = 0; i < 100'000 && !runners.has(std::this_thread::get_id()); ++i) {
    queue.submit("grid",
                 [&] { cores.run(16, [&](std::int64_t) { runners.note(); }, 0, RunBy::kAny); });
    queue.synchronize();
  }
  EXPECT_TRUE(runners.has(std::this_thread::get_id()));
}

TEST(CoresHostTest, EveryBlockRunsOnceBesideManyHosts) {
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

}  // namespace
}  // namespace loom
