// SPDX-License-Identifier: BSD-3-Clause
// Looking at the allocator: snapshots, history, names, descriptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/allocator_fixture.h"
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace loom::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Action = TraceEntry::Action;

class SnapshotTest : public AllocatorTest {
 protected:
  [[nodiscard]] std::vector<Action> actions() const {
    std::vector<Action> result;
    for (const TraceEntry& entry : allocator->history()) result.push_back(entry.action);
    return result;
  }
  /// All null when there is none.
  [[nodiscard]] BlockSnapshot block_at(const void* address) const {
    return allocator->find(address).value_or(BlockSnapshot{});
  }
  [[nodiscard]] std::string describe(const void* address, std::size_t size = 256) const {
    std::string text(size, '?');
    if (!allocator->describe(address, text.data(), text.size())) return "nothing";
    text.resize(std::strlen(text.c_str()));
    return text;
  }
};

TEST_F(SnapshotTest, ShowsSegmentsByAddressAndBlocksWithoutGaps) {
  std::byte* first = alloc(1000, a);
  std::byte* second = alloc(2000, a);
  (void)alloc(12 * kMiB, b);
  free(first);
  const std::vector<SegmentSnapshot> segments = allocator->snapshot();
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_LT(segments[0].address, segments[1].address);
  const SegmentSnapshot& small = segments[segments[0].is_large ? 1 : 0];
  const SegmentSnapshot& large = segments[segments[0].is_large ? 0 : 1];
  EXPECT_EQ(small.queue, &a);
  EXPECT_EQ(large.queue, &b);
  EXPECT_EQ(small.total_size, 2 * kMiB);
  EXPECT_EQ(small.allocated_size, 2048u);
  EXPECT_EQ(small.active_size, 2048u);
  EXPECT_EQ(small.requested_size, 2000u);
  ASSERT_EQ(small.blocks.size(), 3u);
  EXPECT_EQ(small.blocks[0].address, first);
  EXPECT_FALSE(small.blocks[0].active);
  EXPECT_EQ(small.blocks[1].address, second);
  EXPECT_TRUE(small.blocks[1].allocated);
  EXPECT_EQ(small.blocks[2].size, 2 * kMiB - 1024 - 2048);
}

TEST_F(SnapshotTest, PendingBlocksAreActiveOnly) {
  std::byte* block = alloc(1000, a);
  close_gate(b);
  allocator->record_queue(block, b);
  free(block);
  const SegmentSnapshot segment = allocator->snapshot()[0];
  EXPECT_FALSE(segment.blocks[0].allocated);
  EXPECT_TRUE(segment.blocks[0].active);
  EXPECT_EQ(segment.allocated_size, 0u);
  EXPECT_EQ(segment.active_size, 1024u);
}

TEST_F(SnapshotTest, HistoryTellsWhatHappenedInOrder) {
  allocator->record_history(100, nullptr);
  std::byte* block = alloc(1000);
  free(block);
  EXPECT_EQ(alloc(1000 * kMiB), nullptr);
  (void)allocator->snapshot();
  allocator->empty_cache();
  EXPECT_THAT(actions(), ElementsAre(Action::kSegmentAlloc, Action::kAlloc, Action::kFreeRequested,
                                     Action::kFreeCompleted, Action::kOutOfMemory,
                                     Action::kSnapshot, Action::kSegmentFree));
  const std::vector<TraceEntry> entries = allocator->history();
  EXPECT_EQ(entries[1].address, block);
  EXPECT_EQ(entries[1].size, 1000u);
  EXPECT_EQ(entries[1].queue, &a);
  EXPECT_EQ(entries[4].size, 1000 * kMiB);
  EXPECT_EQ(entries[4].free_bytes, 254 * kMiB);
  for (std::size_t i = 1; i < entries.size(); ++i) {
    EXPECT_LE(entries[i - 1].time_ns, entries[i].time_ns);
  }
}

TEST_F(SnapshotTest, FreesAreCompletedWhenTheOtherQueueHasPassed) {
  allocator->record_history(100, nullptr);
  std::byte* block = alloc(1000, a);
  close_gate(b);
  allocator->record_queue(block, b);
  free(block);
  EXPECT_EQ(actions().back(), Action::kFreeRequested);
  gate.open();
  b.synchronize();
  (void)alloc(1000, a);
  EXPECT_THAT(actions(), ElementsAre(Action::kSegmentAlloc, Action::kAlloc, Action::kFreeRequested,
                                     Action::kFreeCompleted, Action::kAlloc));
}

TEST_F(SnapshotTest, HistoryKeepsTheLastEntries) {
  allocator->record_history(3, nullptr);
  for (int i = 0; i < 5; ++i) free(alloc(1000));
  EXPECT_THAT(actions(),
              ElementsAre(Action::kAlloc, Action::kFreeRequested, Action::kFreeCompleted));
  allocator->record_history(0, nullptr);
  free(alloc(5000));
  EXPECT_EQ(allocator->history().size(), 3u) << "stopped, still readable";
  EXPECT_EQ(allocator->history()[0].size, 1000u);
  allocator->record_history(3, nullptr);
  EXPECT_TRUE(allocator->history().empty());
}

TEST_F(SnapshotTest, ContextIsAskedForWithoutTheLockAndAttached) {
  int asked = 0;
  allocator->record_history(100, [&] {
    (void)allocator->stats();  // would deadlock under the lock
    return std::static_pointer_cast<void>(std::make_shared<int>(++asked));
  });
  std::byte* block = alloc(1000);
  const auto number = [](const std::shared_ptr<void>& context) {
    return context == nullptr ? 0 : *std::static_pointer_cast<int>(context);
  };
  EXPECT_EQ(number(allocator->snapshot()[0].blocks[0].context), 1);
  EXPECT_EQ(number(allocator->snapshot()[0].context), 1);
  EXPECT_EQ(number(block_at(block).context), 1);
  free(block);
  for (const TraceEntry& entry : allocator->history()) {
    if (entry.action == Action::kSnapshot) continue;  // nobody's doing
    const bool by_alloc = entry.action == Action::kSegmentAlloc || entry.action == Action::kAlloc;
    EXPECT_EQ(number(entry.context), by_alloc ? 1 : 2);
  }
}

TEST_F(SnapshotTest, FindKnowsInteriorAddresses) {
  for (const std::size_t bytes : {std::size_t{3000}, 5 * kMiB}) {
    std::byte* block = alloc(bytes);
    for (std::byte* address : {block, block + 1, block + bytes - 1}) {
      EXPECT_EQ(block_at(address).address, block);
      EXPECT_EQ(block_at(address).requested_size, bytes);
    }
    const std::size_t size = block_at(block).size;
    EXPECT_FALSE(allocator->find(block + size).has_value()) << "the rest is free";
    free(block);
    EXPECT_FALSE(allocator->find(block).has_value());
  }
  int local = 0;
  EXPECT_FALSE(allocator->find(&local).has_value());
  EXPECT_FALSE(allocator->find(nullptr).has_value());
}

TEST_F(SnapshotTest, NamesLastUntilTheFree) {
  std::byte* block = alloc(3000);
  EXPECT_TRUE(allocator->set_name(block + 5, "weights"));
  EXPECT_EQ(block_at(block).name, "weights");
  EXPECT_EQ(allocator->snapshot()[0].blocks[0].name, "weights");
  free(block);
  EXPECT_FALSE(allocator->set_name(block, "gone"));
  EXPECT_EQ(alloc(3000), block);
  EXPECT_EQ(block_at(block).name, "");
}

TEST_F(SnapshotTest, DescriptionNamesTheAllocation) {
  std::byte* block = alloc(3000);
  allocator->set_name(block, "weights");
  char start[32];
  std::snprintf(start, sizeof start, "%p", static_cast<void*>(block));
  const std::string text = describe(block + 17);
  EXPECT_THAT(text, HasSubstr("allocation 'weights' of 3000 bytes at " + std::string(start)));
  EXPECT_THAT(text, HasSubstr("17 bytes into it"));
  EXPECT_THAT(text, HasSubstr("of device 0"));
}

TEST_F(SnapshotTest, DescriptionKnowsFreedMemory) {
  std::byte* block = alloc(3000);
  free(block);
  EXPECT_THAT(describe(block), HasSubstr("freed memory"));
  std::byte* pending = alloc(3000);
  close_gate(b);
  allocator->record_queue(pending, b);
  free(pending);
  EXPECT_THAT(describe(pending), HasSubstr("still used by another stream"));
}

TEST_F(SnapshotTest, DescriptionIsCutToTheBuffer) {
  std::byte* block = alloc(3000);
  EXPECT_EQ(describe(block, 11), "allocation");
  EXPECT_EQ(describe(block, 1), "");
  EXPECT_FALSE(allocator->describe(block, nullptr, 0));
}

TEST_F(SnapshotTest, DescriptionOfForeignMemoryIsNothing) {
  int local = 0;
  EXPECT_EQ(describe(&local), "nothing");
}

}  // namespace
}  // namespace loom::testing
