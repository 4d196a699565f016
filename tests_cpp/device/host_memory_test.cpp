// SPDX-License-Identifier: BSD-3-Clause
// What may not throw, when the host has no memory for what it notes.
#include "loom/base/check.h"
#include "loom/device/arena.h"
#include "loom/device/command_trace.h"
#include "loom/device/cores.h"
#include "loom/device/device.h"
#include "loom/device/failed_memory.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/failing_new.h"
#include "support/gate.h"
#include "support/queues.h"
#include <atomic>
#include <latch>
#include <new>
#include <stdexcept>
#include <vector>

namespace loom {
namespace {

using ::testing::ExitedWithCode;
using testing::FailingNew;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class WithoutHostMemoryTest : public testing::QueueFixture {
 protected:
  void TearDown() override {
    queue_.timeline().wait(queue_.submitted());
    FailedMemory::clear({{nullptr, PTRDIFF_MAX, AccessKind::kReplace}});
    EXPECT_FALSE(FailedMemory::any());
  }

  [[nodiscard]] static bool failed(const std::byte* place) {
    try {
      FailedMemory::check(place, 1);
      return false;
    } catch (const std::exception&) {
      return true;
    }
  }

  Arena arena_{7, 64 * kMiB};
};

TEST_F(WithoutHostMemoryTest, SegmentsAreGivenBack) {
  std::vector<void*> segments;
  for (int i = 0; i < 8; ++i) segments.push_back(arena_.map_segment(2 * kMiB));
  {
    const FailingNew no_memory(0);
    for (std::size_t i = 0; i < segments.size(); i += 2) {
      arena_.unmap_segment(segments[i], 2 * kMiB);
    }
    for (std::size_t i = 1; i < segments.size(); i += 2) {
      arena_.unmap_segment(segments[i], 2 * kMiB);
    }
  }
  EXPECT_EQ(arena_.mapped(), 0u);
  void* const whole = arena_.map_segment(64 * kMiB);
  EXPECT_NE(whole, nullptr);
  arena_.unmap_segment(whole, 64 * kMiB);
}

TEST_F(WithoutHostMemoryTest, ASegmentThatCannotBeNotedIsNotMapped) {
  void* segment = nullptr;
  {
    const FailingNew no_memory(0);
    segment = arena_.map_segment(2 * kMiB);
  }
  EXPECT_EQ(segment, nullptr);
  EXPECT_EQ(arena_.mapped(), 0u);
}

/// Fails on a worker that has host memory for `spared` more allocations until it has been told.
struct Failing {
  const std::byte* writes;
  int spared;
  int* left;

  void operator()() const {
    testing::t_allocations_left = spared;
    throw std::out_of_range("index 7");
  }
  void accesses(AccessList& list) const { list.push_back({writes, 64, AccessKind::kReplace}); }
  void failed(const FailurePtr&) const noexcept {
    *left = testing::t_allocations_left;
    testing::t_allocations_left = -1;
  }
};

TEST_F(WithoutHostMemoryTest, AFailureIsKeptWhicheverAllocationFails) {
  const auto* const segment = static_cast<const std::byte*>(arena_.map_segment(2 * kMiB));
  int left = 0;
  for (int spared = 0; left == 0; ++spared) {
    SCOPED_TRACE(spared);
    ASSERT_LT(spared, 1000);
    queue_.submit("gather", Failing{segment, spared, &left});
    EXPECT_ANY_THROW(queue_.synchronize());
    EXPECT_TRUE(failed(segment)) << "what the command should have written";
    FailedMemory::clear({{nullptr, PTRDIFF_MAX, AccessKind::kReplace}});
  }
}

TEST_F(WithoutHostMemoryTest, CoresThatCouldNotStartDoSoLater) {
  for (int spared = 0, left = 0; left == 0; ++spared) {
    SCOPED_TRACE(spared);
    ASSERT_LT(spared, 1000);
    Cores cores(3);
    std::atomic<int> blocks{0};
    {
      const FailingNew no_memory(spared);
      cores.run(8, [&](std::int64_t) { ++blocks; });
      left = testing::t_allocations_left;
    }
    EXPECT_EQ(blocks, 8);
    // Each block waits for the two others: three threads must be inside at once.
    std::latch together(3);
    cores.run(3, [&](std::int64_t) { together.arrive_and_wait(); });
  }
}

TEST_F(WithoutHostMemoryTest, ATraceLacksWhatItHasNoRoomFor) {
  queue_.submit("before", nothing);
  CommandTrace& trace = CommandTrace::instance();
  trace.start();
  {
    const FailingNew no_memory(0);
    queue_.submit("first", nothing);
  }
  queue_.submit("second", nothing);
  const CommandTrace::Result result = trace.stop();
  EXPECT_EQ(result.dropped, 1u);
  ASSERT_EQ(result.spans.size(), 1u);
  EXPECT_STREQ(result.spans[0].name, "second");
}

TEST_F(WithoutHostMemoryTest, ATraceThatCannotBeReadStaysForTheCommandsThatWriteIt) {
  CommandTrace& trace = CommandTrace::instance();
  testing::Gate gate;
  trace.start();
  testing::submit_gate(queue_, gate);
  queue_.submit("behind it", nothing);
  {
    const FailingNew no_memory(0);
    EXPECT_THROW((void)trace.stop(), std::bad_alloc);
  }
  gate.open();
  queue_.synchronize();
  EXPECT_TRUE(trace.stop().spans.empty());
}

TEST_F(WithoutHostMemoryTest, LentQueuesAreTakenBack) {
  Device& owner = device(0);
  std::vector<Queue*> queues;
  for (int i = 0; i < 8; ++i) queues.push_back(&owner.lend_queue());
  {
    const FailingNew no_memory(0);
    EXPECT_TRUE(owner.idle());
    for (Queue* const queue : queues) owner.take_back(*queue);
  }
  EXPECT_EQ(&owner.lend_queue(), queues.back());
  owner.take_back(*queues.back());
}

class ProcessWithoutHostMemoryTest : public testing::ChildTest {};

TEST_F(ProcessWithoutHostMemoryTest, ItsThreadsAreStopped) {
  EXPECT_EXIT(testing::finish([] {
                for (int i = 0; i < 8; ++i) {
                  Queue& queue = device(0).pool_queue(0, i);
                  queue.submit("nothing", [] {});
                  queue.synchronize();
                }
                const FailingNew no_memory(0);
                stop_threads();
                stop_threads();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ProcessWithoutHostMemoryTest, ItEndsWithoutHavingUsedADevice) {
  EXPECT_EXIT(testing::finish([] {
                const FailingNew no_memory(0);
                stop_threads();
              }),
              ExitedWithCode(0), "");
}

TEST_F(WithoutHostMemoryTest, WhatNobodyCouldNoteFailsEverythingUntilItIsWritten) {
  const auto* const segment = static_cast<const std::byte*>(arena_.map_segment(2 * kMiB));
  int left = 0;
  queue_.submit("gather", Failing{segment, 0, &left});
  EXPECT_THAT([&] { queue_.synchronize(); }, ThrowsMessage<Error>(HasSubstr("no memory left")));
  EXPECT_TRUE(failed(segment + kMiB));
  FailedMemory::clear({{segment + kMiB, 64, AccessKind::kReplace}});
  EXPECT_FALSE(failed(segment + kMiB));
  EXPECT_TRUE(failed(segment + kMiB + 64));
  FailedMemory::note_allocated(segment, kMiB, queue_);
  EXPECT_FALSE(failed(segment));
}

}  // namespace
}  // namespace loom
