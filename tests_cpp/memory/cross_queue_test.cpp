// SPDX-License-Identifier: BSD-3-Clause
// Memory that more than one queue uses, and what may happen to memory under queued commands.
#include "loom/base/check.h"

#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"
#include <atomic>
#include <thread>

namespace loom::testing {
namespace {

class CrossQueueTest : public AllocatorTest {
 protected:
  explicit CrossQueueTest(std::size_t limit = 64 * kMiB) : AllocatorTest(limit) {}

  /// Runs `action` on another thread and returns when it is done; opens the gate as soon as the
  /// action waits for a queue, or has ended without waiting. Returns whether it waited.
  template <class Action>
  bool open_gate_when_it_waits(Action action) {
    const std::uint64_t waits_before = Queue::host_waits();
    std::atomic<bool> ended{false};
    std::thread thread([&] {
      action();
      ended = true;
    });
    while (Queue::host_waits() == waits_before && !ended) std::this_thread::yield();
    const bool waited = !ended;
    gate.open();
    thread.join();
    return waited;
  }

  /// Submits a command that notes how many segments are mapped when it runs.
  void submit_use(Queue& queue) {
    queue.submit("use", [this] { segments_during_use = source.live_segments(); });
  }

  std::atomic<int> segments_during_use{-1};
};

TEST_F(CrossQueueTest, RecordedBlockIsNotReusedBeforeTheOtherQueueHasPassed) {
  std::byte* block = alloc(4 * kKiB, a);
  close_gate(b);
  allocator->record_queue(block, b);
  free(block);
  EXPECT_NE(alloc(4 * kKiB, a), block);
  gate.open();
  b.synchronize();
  EXPECT_EQ(alloc(4 * kKiB, a), block);
}

TEST_F(CrossQueueTest, PendingBlockIsActiveButNotAllocated) {
  std::byte* block = alloc(4 * kKiB, a);
  close_gate(b);
  allocator->record_queue(block, b);
  free(block);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(active(), 4 * kKiB);
  EXPECT_EQ(stats().requested_bytes[kAll].current, 4096);
  gate.open();
  b.synchronize();
  allocator->empty_cache();
  EXPECT_EQ(active(), 0u);
}

TEST_F(CrossQueueTest, WorkSubmittedAfterTheFreeDelaysNothing) {
  Gate later;
  std::byte* block = alloc(4 * kKiB, a);
  close_gate(b);
  allocator->record_queue(block, b);
  free(block);
  submit_gate(b, later);
  gate.open();
  later.wait_for_arrivals();
  EXPECT_EQ(alloc(4 * kKiB, a), block);
  later.open();
  b.synchronize();
}

TEST_F(CrossQueueTest, EveryRecordedQueueMustHavePassed) {
  Gate second_gate;
  Queue c{QueueId{0, 0, 2}, cores};
  std::byte* block = alloc(4 * kKiB, a);
  close_gate(b);
  submit_gate(c, second_gate);
  allocator->record_queue(block, b);
  allocator->record_queue(block, c);
  allocator->record_queue(block, b);  // counts once
  free(block);
  gate.open();
  b.synchronize();
  std::byte* other = alloc(4 * kKiB, a);
  EXPECT_NE(other, block);
  second_gate.open();
  c.synchronize();
  EXPECT_EQ(alloc(4 * kKiB, a), block);
}

TEST_F(CrossQueueTest, OwnQueueIsNoOtherQueue) {
  close_gate(a);
  std::byte* block = alloc(4 * kKiB, a);
  allocator->record_queue(block, a);
  free(block);
  EXPECT_EQ(alloc(4 * kKiB, a), block);
}

TEST_F(CrossQueueTest, IdleOtherQueueDelaysNothing) {
  std::byte* block = alloc(4 * kKiB, a);
  allocator->record_queue(block, b);
  free(block);
  EXPECT_EQ(active(), 0u);
}

TEST_F(CrossQueueTest, NextOwnerStartsWithoutTheRecordsOfTheLast) {
  std::byte* block = alloc(4 * kKiB, a);
  allocator->record_queue(block, b);
  free(block);
  ASSERT_EQ(alloc(4 * kKiB, a), block);
  close_gate(b);
  free(block);
  EXPECT_EQ(active(), 0u);
}

TEST_F(CrossQueueTest, RecordingWhatIsNotAllocatedThrows) {
  std::byte* block = alloc(4 * kKiB);
  EXPECT_THROW(allocator->record_queue(block + 512, b), Error);
  free(block);
  EXPECT_THROW(allocator->record_queue(block, b), Error);
  allocator->record_queue(nullptr, b);
}

TEST_F(CrossQueueTest, AllocationWaitsForPendingFreesBeforeItFails) {
  std::byte* block = alloc(60 * kMiB, a);
  close_gate(b);
  allocator->record_queue(block, b);
  free(block);
  std::byte* again = nullptr;
  EXPECT_TRUE(open_gate_when_it_waits([&] { again = alloc(60 * kMiB, a); }));
  EXPECT_EQ(again, block);
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_EQ(stats().num_sync_all_streams, 1);
}

TEST_F(CrossQueueTest, EmptyCacheDoesNotUnmapUnderQueuedCommands) {
  std::byte* block = alloc(4 * kKiB, a);
  close_gate(a);
  submit_use(a);
  free(block);
  EXPECT_TRUE(open_gate_when_it_waits([&] { allocator->empty_cache(); }));
  EXPECT_EQ(segments_during_use, 1);
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(CrossQueueTest, EmptyCacheWaitsOnlyForWorkSubmittedBeforeTheFree) {
  std::byte* block = alloc(4 * kKiB, a);
  a.submit("use", [] {});
  free(block);
  a.synchronize();
  close_gate(a);
  allocator->empty_cache();
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(CrossQueueTest, AllocationForAnotherQueueDoesNotUnmapUnderQueuedCommands) {
  std::byte* block = alloc(60 * kMiB, a);
  close_gate(a);
  submit_use(a);
  free(block);
  std::byte* other = nullptr;
  EXPECT_TRUE(open_gate_when_it_waits([&] { other = alloc(50 * kMiB, b); }));
  EXPECT_EQ(segments_during_use, 1);
  EXPECT_NE(other, nullptr);
  EXPECT_EQ(reserved(), 50 * kMiB);
}

TEST_F(CrossQueueTest, GarbageCollectionDoesNotUnmapUnderQueuedCommands) {
  AllocatorConfig config;
  config.garbage_collection_threshold = 0.1;
  allocator->set_config(config);
  std::byte* block = alloc(12 * kMiB, a);
  close_gate(a);
  submit_use(a);
  free(block);
  (void)alloc(14 * kMiB, a);
  EXPECT_EQ(reserved(), 26 * kMiB);
  gate.open();
  a.synchronize();
  EXPECT_EQ(segments_during_use, 2);
  (void)alloc(16 * kMiB, a);
  EXPECT_EQ(reserved(), 30 * kMiB);
}

TEST_F(CrossQueueTest, WorkerDoesNotWaitForItself) {
  std::byte* block = alloc(60 * kMiB, a);
  std::byte* found = block;
  close_gate(a);
  a.submit("allocate", [&] { found = alloc(50 * kMiB, b); });
  free(block);  // the command above comes before the free: the segment is still in use there
  gate.open();
  a.synchronize();
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(stats().num_ooms, 1);
  EXPECT_NE(alloc(50 * kMiB, b), nullptr) << "the memory is not lost";
}

TEST_F(CrossQueueTest, WorkerTakesCachedSegmentsThatNobodyUses) {
  free(alloc(60 * kMiB, b));
  std::byte* found = nullptr;
  a.submit("allocate", [&] { found = alloc(50 * kMiB, a); });
  a.synchronize();
  EXPECT_NE(found, nullptr);
}

TEST_F(CrossQueueTest, WorkerMayFreeAndEmptyTheCache) {
  std::byte* block = alloc(4 * kKiB, a);
  std::byte* used = alloc(30 * kMiB, a);
  close_gate(a);
  a.submit("free", [&] {
    free(block);
    allocator->empty_cache();
  });
  free(used);
  gate.open();
  a.synchronize();
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(source.live_segments(), 2) << "both were freed at positions not yet reached";
  allocator->empty_cache();
  EXPECT_EQ(source.live_segments(), 0);
}

TEST_F(CrossQueueTest, DestructionWaitsForTheQueues) {
  (void)alloc(4 * kKiB, a);
  close_gate(a);
  submit_use(a);
  EXPECT_TRUE(open_gate_when_it_waits([&] { allocator.reset(); }));
  EXPECT_EQ(segments_during_use, 1);
}

}  // namespace
}  // namespace loom::testing
