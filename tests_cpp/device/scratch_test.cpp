// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/scratch.h"

#include "loom/base/check.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include "support/forked.h"
#include "support/gate.h"
#include "support/queues.h"
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace loom {
namespace {

// A device of this file's own, so that nobody else's memory is in its numbers.
constexpr int kDevice = 9;
constexpr std::int64_t kBytes = 1 << 20;

const Scratch kFirst, kSecond;

/// Calls `body` on a thread that counts for kDevice, and ends it.
template <class Body>
void on_own_thread(Body&& body) {
  std::thread([&] {
    set_scratch_device(kDevice);
    body();
  }).join();
}

std::int64_t held() { return scratch_bytes(kDevice).current; }

TEST(ScratchTest, MemoryIsKeptForItsPurposeAndGrows) {
  on_own_thread([] {
    auto* const first = kFirst.get<std::byte>(kBytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0U);
    EXPECT_NE(kSecond.get<std::byte>(10), first);
    EXPECT_EQ(kFirst.get<std::byte>(kBytes / 2), first);
    std::fill_n(kFirst.get<std::byte>(2 * kBytes), 2 * kBytes, std::byte{1});
  });
}

TEST(ScratchTest, WhatThreadsHoldIsCountedUntilTheyEnd) {
  reset_scratch_peak(kDevice);
  reset_accumulated_scratch(kDevice);
  EXPECT_EQ(held(), 0);
  on_own_thread([] {
    (void)kFirst.get<std::byte>(kBytes);
    EXPECT_EQ(held(), kBytes);
    (void)kFirst.get<std::byte>(2 * kBytes);
    (void)kSecond.get<float>(kBytes);
    EXPECT_EQ(held(), 6 * kBytes);
  });
  const ScratchBytes bytes = scratch_bytes(kDevice);
  EXPECT_EQ(bytes.current, 0);
  EXPECT_EQ(bytes.peak, 6 * kBytes);
  EXPECT_EQ(bytes.allocated, 7 * kBytes);
  EXPECT_EQ(bytes.freed, 7 * kBytes);
}

TEST(ScratchTest, MemoryOfAThreadThatHasLetGoIsReleased) {
  testing::Gate idle;
  std::jthread other([&] {
    set_scratch_device(kDevice);
    (void)kFirst.get<std::byte>(kBytes);
    let_go_of_scratch();
    idle.pass();
    std::fill_n(kFirst.get<std::byte>(kBytes), kBytes, std::byte{1});  // its own again
    EXPECT_EQ(held(), kBytes);
  });
  idle.wait_for_arrivals();
  EXPECT_EQ(held(), kBytes);
  release_scratch(kDevice + 1);
  EXPECT_EQ(held(), kBytes);
  release_scratch(kDevice);
  EXPECT_EQ(held(), 0);
  idle.open();
}

TEST(ScratchTest, MemoryInUseIsFreedByItsOwnerWhenThatLetsGo) {
  testing::Gate working;
  std::jthread other([&] {
    set_scratch_device(kDevice);
    auto* const memory = kFirst.get<std::byte>(kBytes);
    working.pass();
    std::fill_n(memory, kBytes, std::byte{1});
    EXPECT_EQ(held(), kBytes);
    let_go_of_scratch();
    EXPECT_EQ(held(), 0);
  });
  working.wait_for_arrivals();
  release_scratch(kDevice);
  EXPECT_EQ(held(), kBytes);
  working.open();
}

TEST(ScratchTest, SleepingWorkersAndCoresHaveLetGo) {
  Cores cores(2, {}, kDevice);
  Queue queue(QueueId{kDevice, 0, 0}, cores);
  queue.submit("grid", [&] {
    (void)kFirst.get<std::byte>(kBytes);
    std::atomic<int> inside{0};
    cores.run(2, [&](std::int64_t) {
      (void)kSecond.get<std::byte>(kBytes);
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();  // a block on each core
    });
  });
  queue.synchronize();
  EXPECT_EQ(held(), 3 * kBytes);
  testing::wait_until_others_sleep();
  release_scratch(kDevice);
  EXPECT_EQ(held(), 0);
}

// Kernels write and check while their memory is taken from them in between.
TEST(ScratchStressTest, NobodyFreesWhatAKernelUses) {
  constexpr int kThreads = 4, kRounds = 2'000;
  std::atomic<int> left{kThreads};
  std::vector<std::jthread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      set_scratch_device(kDevice);
      for (int round = 0; round < kRounds; ++round) {
        const std::int64_t count = 64 + (round * 37) % 4096;
        auto* const values = kFirst.get<int>(count);
        std::fill_n(values, count, id + round);
        EXPECT_TRUE(std::all_of(values, values + count, [&](int v) { return v == id + round; }));
        if (round % 3 == 0) let_go_of_scratch();
      }
      --left;
    });
  }
  while (left.load() > 0) release_scratch(kDevice);
  threads.clear();
  EXPECT_EQ(held(), 0);
}

using ScratchForkTest = testing::ChildTest;

TEST_F(ScratchForkTest, AChildReservesNoneAndEndsQuietly) {
  EXPECT_EXIT(testing::finish([] {
                note_device_used();
                (void)kFirst.get<std::byte>(kBytes);
                let_go_of_scratch();
                EXPECT_EQ(testing::exit_code_of_fork([] {
                            EXPECT_THROW((void)kFirst.get<std::byte>(kBytes), Error);
                            EXPECT_THROW(release_scratch(0), Error);
                          }),
                          0);
              }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
