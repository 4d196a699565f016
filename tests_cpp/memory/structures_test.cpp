// SPDX-License-Identifier: BSD-3-Clause
// The allocator's building blocks, each against a plain model.
#include "loom/memory/bit_index.h"
#include "loom/memory/block_index.h"
#include "loom/memory/block_pool.h"
#include "loom/memory/free_list.h"
#include "loom/memory/segment_table.h"
#include "loom/memory/size_classes.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace loom::detail {
namespace {

std::byte* address_of(std::size_t number) { return reinterpret_cast<std::byte*>(number); }

TEST(SizeClasses, RequestsAreRoundedTo512Bytes) {
  EXPECT_EQ(block_bytes(1), 512u);
  EXPECT_EQ(block_bytes(512), 512u);
  EXPECT_EQ(block_bytes(513), 1024u);
  EXPECT_EQ(block_bytes(kMaxRequestBytes), kMaxRequestBytes + 1) << "no overflow at the end";
}

TEST(SizeClasses, SegmentsFollowTheSizeOfTheBlock) {
  EXPECT_EQ(segment_bytes(512, 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB, 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB + 512, 2 * kMiB), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB - 512, 2 * kMiB), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB, 2 * kMiB), 10 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB + 512, 2 * kMiB), 12 * kMiB);
  EXPECT_EQ(segment_bytes(512, 8 * kMiB), 8 * kMiB) << "the source's granularity counts too";
}

TEST(SizeClasses, RestIsCutOffWhenItIsWorthKeeping) {
  EXPECT_TRUE(should_split(2 * kMiB, 2 * kMiB - 512, false, SIZE_MAX));
  EXPECT_FALSE(should_split(2 * kMiB, 2 * kMiB, false, SIZE_MAX));
  EXPECT_FALSE(should_split(20 * kMiB, 19 * kMiB, true, SIZE_MAX));
  EXPECT_TRUE(should_split(20 * kMiB, 19 * kMiB - 512, true, SIZE_MAX));
  EXPECT_FALSE(should_split(60 * kMiB, 40 * kMiB, true, 32 * kMiB)) << "oversize is not split";
}

TEST(SizeClasses, OversizeBlocksServeOnlyOversizeRequests) {
  EXPECT_TRUE(may_serve(20 * kMiB, 2 * kMiB, SIZE_MAX, 20 * kMiB));
  EXPECT_FALSE(may_serve(40 * kMiB, 2 * kMiB, 32 * kMiB, 20 * kMiB));
  EXPECT_TRUE(may_serve(40 * kMiB, 33 * kMiB, 32 * kMiB, 20 * kMiB));
  EXPECT_FALSE(may_serve(60 * kMiB, 33 * kMiB, 32 * kMiB, 20 * kMiB));
}

TEST(BitIndexTest, AgreesWithASetOfNumbers) {
  std::mt19937 random(1);
  BitIndex bits;
  std::set<std::size_t> model;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t bit = random() % BitIndex::kBits;
    // Mostly sparse, so that whole words are empty.
    if (random() % 4 == 0) {
      bits.set(bit);
      model.insert(bit);
    } else if (!model.empty()) {
      const std::size_t gone = *model.begin();
      bits.clear(gone);
      model.erase(gone);
    }
    const auto next = model.lower_bound(bit);
    ASSERT_EQ(bits.first_from(bit), next == model.end() ? BitIndex::kNone : *next);
    const auto after = model.upper_bound(bit);
    ASSERT_EQ(bits.last_up_to(bit), after == model.begin() ? BitIndex::kNone : *std::prev(after));
    ASSERT_EQ(bits.test(bit), model.count(bit) == 1);
  }
}

TEST(FreeListTest, GivesTheSmallestBlockThatFits) {
  std::mt19937 random(2);
  FreeList list;
  std::deque<Block> blocks;
  std::multiset<std::size_t> sizes;
  std::vector<Block*> inside;
  for (int step = 0; step < 20'000; ++step) {
    if (inside.size() < 3 || random() % 2 == 0) {
      Block& block = blocks.emplace_back();
      block.address = address_of(blocks.size() << 30);
      const std::size_t largest = random() % 4 == 0 ? 100 * kMiB : 3 * kMiB;
      block.size = block_bytes(1 + random() % largest);
      list.insert(block);
      inside.push_back(&block);
      sizes.insert(block.size);
    } else {
      std::swap(inside[random() % inside.size()], inside.back());
      ASSERT_TRUE(list.contains(*inside.back()));
      list.erase(*inside.back());
      sizes.erase(sizes.find(inside.back()->size));
      inside.pop_back();
    }
    const std::size_t wanted = block_bytes(1 + random() % (4 * kMiB));
    const Block* found = list.best_fit(wanted);
    const auto expected = sizes.lower_bound(wanted);
    ASSERT_EQ(found == nullptr, expected == sizes.end());
    if (found != nullptr) {
      ASSERT_EQ(found->size, *expected);
    }
    ASSERT_EQ(list.count(), inside.size());
  }
}

TEST(FreeListTest, GivesTheBlockThatCameLastOfThoseOfASize) {
  FreeList list;
  Block blocks[3];
  for (Block& block : blocks) {
    block.size = 4096;
    list.insert(block);
  }
  EXPECT_EQ(list.best_fit(4096), &blocks[2]);
  list.erase(blocks[1]);
  EXPECT_EQ(list.best_fit(512), &blocks[2]);
  list.erase(blocks[2]);
  EXPECT_EQ(list.best_fit(4096), &blocks[0]);
  list.erase(blocks[0]);
  EXPECT_EQ(list.best_fit(512), nullptr);
}

TEST(SegmentTableTest, FindsEveryAddressOfEverySegmentThroughGrowthAndErasure) {
  SegmentTable table;
  std::deque<Segment> segments;
  std::size_t next = std::size_t{1} << 40;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t bytes = (1 + i % 11) * SegmentTable::kGranuleBytes;
    table.insert(segments.emplace_back(address_of(next), bytes));
    next += bytes + i % 3 * SegmentTable::kGranuleBytes;
  }
  for (std::size_t i = 0; i < segments.size(); i += 2) table.erase(segments[i]);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    Segment* expected = i % 2 == 0 ? nullptr : &segments[i];
    EXPECT_EQ(table.find(segments[i].address), expected) << i;
    EXPECT_EQ(table.find(segments[i].address + segments[i].bytes - 1), expected) << i;
  }
  EXPECT_EQ(table.find(address_of(4096)), nullptr);
  EXPECT_EQ(table.find(nullptr), nullptr);
}

class BlockIndexTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(BlockIndexTest, FindsStartsAndInteriors) {
  std::byte* const start = address_of(std::size_t{1} << 40);
  BlockIndex index(start, GetParam());
  constexpr std::size_t kSecond = std::size_t{700} * 512;
  Block first, second;
  index.insert(start, &first);
  index.insert(start + kSecond, &second);
  EXPECT_EQ(index.at(start), &first);
  EXPECT_EQ(index.at(start + 512), nullptr);
  EXPECT_EQ(index.at(start + kSecond + 1), nullptr);
  EXPECT_EQ(index.containing(start + kSecond - 1), &first);
  EXPECT_EQ(index.containing(start + kSecond), &second);
  EXPECT_EQ(index.containing(start + GetParam() - 1), &second);
  index.erase(start + kSecond);
  EXPECT_EQ(index.containing(start + GetParam() - 1), &first);
}

INSTANTIATE_TEST_SUITE_P(SegmentSizes, BlockIndexTest, ::testing::Values(2 * kMiB, 64 * kMiB));

/// A pool with one segment of 2 MiB, whose memory is never touched.
class BlockPoolTest : public ::testing::Test {
 protected:
  BlockPoolTest() { pool.add_segment(segment); }

  Block& take(std::size_t size) {
    Block& block = *pool.best_fit(size);
    change = pool.take(block, size, block.size > size);
    return block;
  }
  void give_back(Block& block) { change = pool.give_back(block); }
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> result;
    for (Block* block = segment.first; block != nullptr; block = block->next) {
      result.push_back(block->size);
    }
    return result;
  }

  using Sizes = std::vector<std::size_t>;
  BlockStore store;
  BlockPool pool{store, false};
  Segment segment{address_of(std::size_t{1} << 40), 2 * kMiB};
  SplitChange change;
};

TEST_F(BlockPoolTest, SplitsFromTheFront) {
  Block& block = take(4096);
  EXPECT_EQ(block.address, segment.address);
  EXPECT_EQ(sizes(), (Sizes{4096, 2 * kMiB - 4096}));
  EXPECT_EQ(change.blocks, 1);
  EXPECT_EQ(change.bytes, static_cast<std::int64_t>(2 * kMiB - 4096));
}

TEST_F(BlockPoolTest, ShrinkingASplitBlockChangesBytesOnly) {
  take(4096);
  take(512);
  EXPECT_EQ(change.blocks, 0);
  EXPECT_EQ(change.bytes, -512);
}

TEST_F(BlockPoolTest, TheWholeSegmentIsNoSplitBlock) {
  take(2 * kMiB);
  EXPECT_EQ(change.blocks, 0);
  EXPECT_EQ(change.bytes, 0);
  EXPECT_EQ(pool.best_fit(512), nullptr);
}

TEST_F(BlockPoolTest, MergesWithBothNeighbours) {
  Block& first = take(1024);
  Block& second = take(1024);
  Block& third = take(1024);
  give_back(first);
  give_back(third);
  EXPECT_EQ(sizes(), (Sizes{1024, 1024, 2 * kMiB - 2048}));
  give_back(second);
  EXPECT_EQ(sizes(), (Sizes{2 * kMiB}));
  EXPECT_EQ(change.blocks, -2);
  EXPECT_TRUE(segment.is_free());
  EXPECT_EQ(segment.index.at(segment.address + 1024), nullptr);
}

TEST_F(BlockPoolTest, RemovesAFreeSegment) {
  give_back(take(512));
  pool.remove_segment(segment);
  EXPECT_EQ(pool.free_blocks().count(), 0u);
  EXPECT_EQ(pool.best_fit(512), nullptr);
}

TEST_F(BlockPoolTest, RandomWorkKeepsTheSegmentCovered) {
  std::mt19937 random(3);
  std::vector<Block*> held;
  for (int step = 0; step < 5000; ++step) {
    const std::size_t size = block_bytes(1 + random() % 50'000);
    if (random() % 2 == 0 && pool.best_fit(size) != nullptr) {
      held.push_back(&take(size));
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      give_back(*held.back());
      held.pop_back();
    }
    std::size_t covered = 0;
    for (const std::size_t block : sizes()) covered += block;
    ASSERT_EQ(covered, segment.bytes);
  }
  for (Block* block : held) give_back(*block);
  EXPECT_EQ(sizes(), (Sizes{2 * kMiB}));
}

}  // namespace
}  // namespace loom::detail
