// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/processors.h"

#include "loom/base/futex.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/affinity.h"
#include "support/queues.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace loom {
namespace {

using testing::allowed;
using testing::bind_to;

/// Runs the test on a thread of its own: the process's other threads keep their processors.
template <class Body>
void on_own_thread(Body&& body) {
  std::thread(body).join();
}

TEST(ProcessorsTest, AThreadLeavesAProcessorUntilItIsRestored) {
  on_own_thread([] {
    const std::vector<int> before = allowed();
    if (before.size() < 2) GTEST_SKIP() << "one processor";
    Processors processors;
    for (const int cpu : {before[0], before[1]}) {
      ASSERT_TRUE(processors.avoid(cpu));
      EXPECT_TRUE(processors.restricted());
      EXPECT_NE(sched_getcpu(), cpu);
      EXPECT_EQ(allowed().size(), before.size() - 1);
    }
    processors.restore();
    EXPECT_FALSE(processors.restricted());
    EXPECT_EQ(allowed(), before);
  });
}

TEST(ProcessorsTest, AThreadMovesToAProcessorThatItMayRunOn) {
  on_own_thread([] {
    const std::vector<int> before = allowed();
    Processors processors;
    for (const int cpu : before) {
      ASSERT_TRUE(processors.move_to(cpu));
      EXPECT_TRUE(processors.restricted());
      EXPECT_EQ(allowed(), std::vector<int>{cpu});
    }
    processors.restore();
    EXPECT_EQ(allowed(), before);
    bind_to(before[0]);
    EXPECT_FALSE(processors.move_to(before.size() > 1 ? before[1] : CPU_SETSIZE - 1));
    EXPECT_FALSE(processors.restricted());
  });
}

TEST(ProcessorsTest, TheLastProcessorCannotBeAvoided) {
  on_own_thread([] {
    const int cpu = allowed()[0];
    bind_to(cpu);
    Processors processors;
    EXPECT_FALSE(processors.avoid(cpu));
    EXPECT_FALSE(processors.restricted());
    EXPECT_EQ(allowed(), std::vector<int>{cpu});
  });
}

void allow(pid_t thread, const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  ASSERT_EQ(sched_setaffinity(thread, sizeof set, &set), 0);
}

/// What `taskset -ap` does to the main thread and the calling one.
class Outsider {
 public:
  explicit Outsider(const std::vector<int>& cpus) : before_(CpuSet::of_main_thread()->cpus()) {
    allow(getpid(), cpus);
    allow(0, cpus);
  }
  ~Outsider() { allow(getpid(), before_); }

 private:
  const std::vector<int> before_;
};

TEST(ProcessorsTest, WhatOthersAllowTheThreadMeanwhileHolds) {
  on_own_thread([] {
    const std::vector<int> before = allowed();
    if (before.size() < 2) GTEST_SKIP() << "one processor";
    for (const int avoided : {before[0], before[1]}) {
      for (const int left : {before[0], before[1]}) {  // on two processors one is the own choice
        SCOPED_TRACE(::testing::Message() << "avoided " << avoided << ", left " << left);
        allow(0, before);
        Processors processors;
        ASSERT_TRUE(processors.avoid(avoided));
        const Outsider outsider({left});
        processors.restore();
        EXPECT_EQ(allowed(), std::vector<int>{left});
        EXPECT_FALSE(processors.restricted());
        EXPECT_FALSE(processors.avoid(left)) << "there is no other one now";
      }
    }
  });
}

TEST(ProcessorsTest, WhatOthersAllowIsWhereTheNextMoveStarts) {
  on_own_thread([] {
    const std::vector<int> before = allowed();
    if (before.size() < 2) GTEST_SKIP() << "one processor";
    Processors processors;
    ASSERT_TRUE(processors.avoid(before[0]));
    const Outsider outsider({before[0]});
    EXPECT_FALSE(processors.move_to(before[1]));
    processors.restore();
    EXPECT_EQ(allowed(), std::vector<int>{before[0]});
  });
}

TEST(ProcessorsTest, AMainThreadThatMovesAloneChangesNothing) {
  on_own_thread([] {
    const std::vector<int> before = allowed();
    if (before.size() < 2) GTEST_SKIP() << "one processor";
    const std::vector<int> of_main = CpuSet::of_main_thread()->cpus();
    Processors processors;
    ASSERT_TRUE(processors.move_to(before[0]));
    allow(getpid(), {before[1]});
    processors.restore();
    EXPECT_EQ(allowed(), before);
    allow(getpid(), of_main);
  });
}

/// The processor that the helper was on, in a grid whose publisher is bound to `cpu` and sleeps in
/// its block until the helper is there.
int helpers_processor(Cores& cores, int cpu) {
  std::atomic<int> seen{-1};
  on_own_thread([&] {
    bind_to(cpu);
    const std::thread::id publisher = std::this_thread::get_id();
    std::latch together(2);
    cores.run(2, [&](std::int64_t) {
      if (std::this_thread::get_id() != publisher) seen = sched_getcpu();
      together.arrive_and_wait();
    });
  });
  return seen;
}

TEST(CoresPlacementTest, WhileAHostWaitsHelpersAreNotOnThePublishersProcessor) {
  const std::vector<int> cpus = allowed();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor";
  Cores cores(2, cpus);
  const Cores::HostWait wait(cores);
  constexpr int kRounds = 20;
  int misplaced = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int cpu = cpus[static_cast<std::size_t>(round) % cpus.size()];
    misplaced += helpers_processor(cores, cpu) == cpu ? 1 : 0;
  }
  // The system may move a helper just before its block.
  EXPECT_LT(misplaced, kRounds / 2);
}

constexpr std::chrono::seconds kPatience{30};

TEST(QueuePlacementTest, AWorkerLeavesTheHostThatWaitsForItAndMayRunAnywhereAfterwards) {
  const std::vector<int> cpus = allowed();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor";
  Cores cores(2, cpus);
  Queue queue({0, 0, 0}, cores);
  on_own_thread([&] {
    bind_to(cpus[0]);
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    int cpu = cpus[0];
    while (cpu == cpus[0] && std::chrono::steady_clock::now() < give_up) {
      queue.submit("to the host", [&] {
        Processors processors;
        EXPECT_TRUE(processors.move_to(cpus[0]));
        processors.restore();
        cores.run(2, [](std::int64_t) { std::this_thread::yield(); }, 0, RunBy::kAny);
      });
      queue.synchronize();
      queue.submit("where", [&] {
        cpu = sched_getcpu();
        EXPECT_EQ(allowed(), cpus);
      });
      queue.synchronize();
    }
    EXPECT_NE(cpu, cpus[0]);
  });
}

TEST(CoresPlacementTest, AHostOnThePublishersProcessorDoesNotStandForAHelper) {
  Cores cores(2);
  cores.run(2, [](std::int64_t) {});
  testing::wait_until_others_sleep();  // the helper, which a publisher has to wake then
  const int cpu = sched_getcpu();
  std::latch looking(1), end(1);
  std::thread host([&] {
    bind_to(cpu);
    int looks = 0;
    cores.help_until(
        [&] {
          if (++looks == 10) {  // as if it had lost its processor to the publisher
            looking.count_down();
            end.wait();
          }
          return looks >= 10;
        },
        60'000'000'000);
  });
  std::thread publisher([&] {
    bind_to(cpu);
    looking.wait();
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    std::atomic<int> inside{0};
    cores.run(
        2,
        [&](std::int64_t) {
          ++inside;
          while (inside < 2 && std::chrono::steady_clock::now() < give_up) {
            std::this_thread::yield();
          }
          EXPECT_EQ(inside, 2) << "nobody came to help";
        },
        0, RunBy::kAny);
    end.count_down();
  });
  publisher.join();
  host.join();
}

TEST(CoresPlacementTest, ThreadsOfOneProcessorMeetInAGrid) {
  const int cpu = allowed()[0];
  Cores cores(2, {cpu});
  EXPECT_EQ(helpers_processor(cores, cpu), cpu);
  const Cores::HostWait wait(cores);
  EXPECT_EQ(helpers_processor(cores, cpu), cpu);
}

TEST(QueuePlacementTest, AWorkerGoesOnOfferingItsCoreToTheThreadThatSubmitsThere) {
  on_own_thread([] {
    const int cpu = allowed()[0];
    bind_to(cpu);
    std::atomic<bool> stop{false}, taken{false}, still_taken{true};
    Cores cores(1, {cpu});
    Queue queue({0, 0, 0}, cores);
    {
      std::jthread greedy([&] {
        while (!stop.load(std::memory_order_relaxed)) cpu_relax();
      });
      queue.submit("offer", [&] {
        spin_until([] { return false; }, 60'000'000'000, 0);
        taken = CoreOffers::taken(0);
      });
      queue.synchronize();
      stop = true;
    }
    queue.submit("look", [&] { still_taken = CoreOffers::taken(0); });
    queue.synchronize();
    EXPECT_TRUE(taken);
    EXPECT_FALSE(still_taken);
  });
}

/// Runs `block` on the helper of two cores, while the caller waits in a block of its own.
template <class Block>
void run_on_helper(Cores& cores, Block&& block) {
  const auto caller = std::this_thread::get_id();
  std::latch both(2);
  cores.run(2, [&](std::int64_t) {
    both.arrive_and_wait();
    if (std::this_thread::get_id() != caller) block();
  });
}

/// Makes the helper offer its processor `cpu` until somebody keeps it for long.
void have_core_taken(Cores& cores, int cpu) {
  std::atomic<bool> stop{false};
  std::jthread greedy([&] {
    bind_to(cpu);
    while (!stop.load(std::memory_order_relaxed)) cpu_relax();
  });
  run_on_helper(cores, [] {
    spin_until([] { return false; }, 60'000'000'000, 0);
    EXPECT_TRUE(CoreOffers::taken(0));
  });
  stop = true;
}

/// The processor that the thread is on, or was on before it fell asleep.
int processor_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string word;
  std::getline(file, word, ')');              // its name may have spaces
  constexpr int kField = 39, kNameField = 2;  // proc(5)
  for (int field = kNameField; field < kField; ++field) file >> word;
  return std::stoi(word);
}

// Grids so short that the helper never sees one from behind the publisher.
TEST(CoresPlacementTest, AHelperThatIsTooLateBehindThePublisherGoesToAnotherProcessor) {
  const std::vector<int> cpus = allowed();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor";
  Cores cores(2, {cpus[0], cpus[1]});
  std::atomic<bool> stop{false};
  // Otherwise the system would move the helper.
  std::jthread greedy([&] {
    bind_to(cpus[1]);
    while (!stop.load(std::memory_order_relaxed)) cpu_relax();
  });
  constexpr int kRounds = 10, kGrids = 100;
  int behind = 0;
  on_own_thread([&] {
    bind_to(cpus[0]);
    for (int round = 0; round < kRounds; ++round) {
      pid_t helper = 0;
      run_on_helper(cores, [&] {
        helper = gettid();
        Processors processors;
        EXPECT_TRUE(processors.move_to(cpus[0]));
        processors.restore();
      });
      const Cores::HostWait wait(cores);
      for (int grid = 0; grid < kGrids; ++grid) {
        cores.run(2, [](std::int64_t) {});
        std::this_thread::yield();
      }
      behind += processor_of(helper) == cpus[0] ? 1 : 0;
    }
  });
  stop = true;
  EXPECT_LT(behind, kRounds / 2);
}

TEST(CoresPlacementTest, AHelperOffersACoreThatAStrangerTookNoMore) {
  const std::vector<int> cpus = allowed();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor";
  on_own_thread([&] {
    bind_to(cpus[0]);
    Cores cores(2, {cpus[1]});
    cores.note_submitter();
    have_core_taken(cores, cpus[1]);
    bool still_taken = false;
    run_on_helper(cores, [&] { still_taken = CoreOffers::taken(0); });
    EXPECT_TRUE(still_taken);
  });
}

TEST(CoresPlacementTest, AHelperGoesOnOfferingItsCoreToTheThreadThatSubmitsThere) {
  const std::vector<int> cpus = allowed();
  if (cpus.size() < 2) GTEST_SKIP() << "one processor";
  on_own_thread([&] {
    Cores cores(2, {cpus[1]});
    bind_to(cpus[1]);
    cores.note_submitter();
    bind_to(cpus[0]);
    have_core_taken(cores, cpus[1]);
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    bool taken = true;
    while (taken && std::chrono::steady_clock::now() < give_up) {
      run_on_helper(cores, [&] { taken = CoreOffers::taken(0); });
    }
    EXPECT_FALSE(taken);
  });
}

}  // namespace
}  // namespace loom
