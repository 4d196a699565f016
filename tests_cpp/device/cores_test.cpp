// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/cores.h"

#include "loom/base/check.h"
#include "loom/base/mutex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/gate.h"
#include "support/queues.h"
#include "support/stress.h"
#include "support/threads.h"
#include <array>
#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

namespace loom {
namespace {

using ::testing::ExitedWithCode;
using testing::Gate;

class CoresGridTest : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(CoresGridTest, EveryBlockRunsOnce) {
  const auto [count, blocks] = GetParam();
  Cores cores(count);
  // Plain integers: two runs of one block, or a run that is not seen by the caller, are races.
  std::vector<int> runs(static_cast<std::size_t>(blocks), 0);
  for (int round = 1; round <= 20; ++round) {
    cores.run(blocks, [&](std::int64_t block) { ++runs[static_cast<std::size_t>(block)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(blocks), round));
  }
}

INSTANTIATE_TEST_SUITE_P(CountsAndBlocks, CoresGridTest,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(0, 1, 2, 3, 64, 5000)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "Cores" +
                                  std::to_string(std::get<1>(info.param)) + "Blocks";
                         });

TEST(CoresTest, NeedAtLeastOne) { EXPECT_THROW(Cores(0), Error); }

TEST(CoresTest, BlocksRunAtTheSameTimeOnAllCores) {
  Cores cores(3);
  // Each block waits for the two others: three threads must be inside at once.
  std::latch together(3);
  cores.run(3, [&](std::int64_t) { together.arrive_and_wait(); });
}

TEST(CoresTest, OneCoreRunsAllBlocksOnTheCallingThread) {
  Cores cores(1);
  std::set<std::thread::id> threads;
  cores.run(100, [&](std::int64_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

TEST(CoresTest, NoThreadStartsBeforeAGridCanUseIt) {
  const int before = testing::count_threads();
  Cores cores(3);
  cores.run(1, [](std::int64_t) {});
  EXPECT_EQ(testing::count_threads(), before);
  cores.run(2, [](std::int64_t) {});
  EXPECT_EQ(testing::count_threads(), before + 2);
}

TEST(CoresTest, AGridFromInsideABlockRunsOnTheSameThread) {
  Cores cores(2);
  std::atomic<int> inner{0};
  cores.run(8, [&](std::int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    cores.run(8, [&](std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      inner.fetch_add(1);
    });
  });
  EXPECT_EQ(inner.load(), 64);
}

TEST(CoresTest, AfterAGridTheThreadMayPublishAgain) {
  Cores cores(2);
  cores.run(2, [](std::int64_t) {});
  std::latch together(2);
  cores.run(2, [&](std::int64_t) { together.arrive_and_wait(); });
}

TEST(CoresTest, ThrowsTheErrorOfABlock) {
  for (const int count : {1, 2}) {
    Cores cores(count);
    EXPECT_THAT(
        [&] {
          cores.run(10, [](std::int64_t block) {
            if (block == 3) throw std::out_of_range("block 3");
          });
        },
        ::testing::ThrowsMessage<std::out_of_range>("block 3"));
  }
}

TEST(CoresTest, AfterAnErrorUnclaimedBlocksAreSkipped) {
  Cores cores(2);
  std::atomic<int> ran{0};
  EXPECT_THROW(cores.run(1'000'000,
                         [&](std::int64_t) {
                           ran.fetch_add(1);
                           throw std::runtime_error("at once");
                         }),
               std::runtime_error);
  EXPECT_LE(ran.load(), 2);
}

TEST(CoresTest, AnErrorIsThrownAfterClaimedBlocksHaveEnded) {
  Cores cores(2);
  std::latch both_claimed(2);
  std::atomic<bool> ended{false};
  EXPECT_THROW(cores.run(2,
                         [&](std::int64_t block) {
                           both_claimed.arrive_and_wait();
                           if (block == 0) throw std::runtime_error("first");
                           std::this_thread::yield();
                           ended.store(true);
                         }),
               std::runtime_error);
  EXPECT_TRUE(ended.load());
}

TEST(CoresTest, WorkAsBeforeAfterAnError) {
  Cores cores(2);
  for (int round = 0; round < 200; ++round) {
    EXPECT_THROW(cores.run(4, [](std::int64_t) { throw 1; }), int);
    std::atomic<int> ran{0};
    cores.run(4, [&](std::int64_t) { ran.fetch_add(1); });
    EXPECT_EQ(ran.load(), 4);
  }
}

TEST(CoresTest, MoreGridsAtOnceThanThereIsRoomForAllRun) {
  constexpr int kGrids = 80;
  Cores cores(2);
  std::latch all_running(kGrids);
  std::array<std::atomic<int>, kGrids> blocks{};
  testing::on_threads(kGrids, [&](int grid) {
    cores.run(2, [&, grid](std::int64_t) {
      if (blocks[static_cast<std::size_t>(grid)].fetch_add(1) == 0) all_running.count_down();
      all_running.wait();
    });
  });
  for (const auto& count : blocks) EXPECT_EQ(count.load(), 2);
}

/// One helper, and publishers on threads of their own whose first block is held at a gate.
class CoresPriorityTest : public ::testing::Test {
 protected:
  /// Publishes `blocks` blocks; the publisher is held in the first that it claims, helpers note
  /// `name` for each of theirs.
  void publish(char name, std::int64_t blocks, int priority) {
    publishers_.emplace_back([this, name, blocks, priority] {
      const std::thread::id publisher = std::this_thread::get_id();
      cores_.run(
          blocks,
          [&](std::int64_t) {
            if (std::this_thread::get_id() == publisher) {
              publishers_gate_.pass();
            } else {
              on_helper(name);
            }
          },
          priority);
    });
    publishers_gate_.wait_for_arrivals(static_cast<int>(publishers_.size()));
  }

  void on_helper(char name) {
    if (order_.empty()) helper_gate_.pass();
    order_.push_back(name);
    noted_.count_down();
  }

  void join() {
    publishers_gate_.open();
    publishers_.clear();
  }

  Cores cores_{2};
  Gate publishers_gate_;
  Gate helper_gate_;
  // Only the one helper writes, while the publishers are held.
  std::vector<char> order_;
  std::latch noted_{4};
  std::vector<std::jthread> publishers_;
};

TEST_F(CoresPriorityTest, AHelperGoesToTheMostUrgentGridAfterEachBlock) {
  publish('a', 3, 0);                // one block for the publisher, two for the helper
  helper_gate_.wait_for_arrivals();  // which is inside the first of them
  publish('b', 2, 0);
  publish('c', 2, -1);
  helper_gate_.open();
  noted_.wait();
  EXPECT_EQ(order_[0], 'a');
  EXPECT_EQ(order_[1], 'c');
  EXPECT_EQ(std::multiset<char>(order_.begin(), order_.end()),
            (std::multiset<char>{'a', 'a', 'b', 'c'}));
  join();
}

/// Several publishers with random grids, some of which fail.
void publish_from_many_threads() {
  Cores cores(3);
  const int rounds = testing::scaled(5'000);
  testing::on_threads(6, [&](int thread) {
    testing::Random random(static_cast<std::uint64_t>(thread) + 1);
    for (int round = 0; round < rounds; ++round) {
      const auto blocks = static_cast<std::int64_t>(random.below(40));
      const bool fails = blocks > 0 && random.one_in(16);
      const auto bad =
          fails ? static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(blocks)))
                : std::int64_t{-1};
      std::vector<int> runs(static_cast<std::size_t>(blocks), 0);
      const auto run = [&] {
        cores.run(
            blocks,
            [&](std::int64_t block) {
              ++runs[static_cast<std::size_t>(block)];
              if (block == bad) throw std::runtime_error("bad block");
            },
            -static_cast<int>(random.below(2)));
      };
      if (fails) {
        EXPECT_THROW(run(), std::runtime_error);
      } else {
        run();
        EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(blocks), 1));
      }
    }
  });
}

TEST(CoresStressTest, ManyPublishersGetEachBlockRunOnce) { publish_from_many_threads(); }

using CoresChildTest = testing::ChildTest;

TEST_F(CoresChildTest, ManyPublishersGetEachBlockRunOnceWhenHelpersSleepAtOnce) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_SPIN_US", "0", 1);
                publish_from_many_threads();
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
