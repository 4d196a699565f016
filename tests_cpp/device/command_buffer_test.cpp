// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/command_buffer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>

namespace loom {
namespace {

class CommandBufferTest : public ::testing::Test {
 protected:
  /// Appends a command of about `Bytes` bytes that notes `number` when it runs.
  template <std::size_t Bytes>
  void append(int number) {
    std::array<char, Bytes> filling;
    filling.fill(static_cast<char>(number));
    buffer_.append("note", [this, number, filling] {
      EXPECT_EQ(filling.back(), static_cast<char>(number));
      ran_.push_back(number);
    });
  }

  void consume(int count) {
    for (int i = 0; i < count; ++i) {
      buffer_.front().run();
      buffer_.pop();
    }
  }

  void expect_ran_in_order(int count) {
    ASSERT_EQ(ran_.size(), static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) EXPECT_EQ(ran_[static_cast<std::size_t>(i)], i);
  }

  std::vector<int> ran_;
  CommandBuffer buffer_;
};

TEST_F(CommandBufferTest, RunsCommandsOfAllSizesInOrderAcrossChunks) {
  int next = 0;
  for (int round = 0; round < 300; ++round) {
    append<1>(next++);
    append<8>(next++);
    append<100>(next++);
    append<401>(next++);
    append<5000>(next++);
  }
  consume(next);
  expect_ran_in_order(next);
}

TEST_F(CommandBufferTest, InterleavedAppendAndPopKeepOrder) {
  int appended = 0;
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i <= round % 7; ++i) append<300>(appended++);
    consume(static_cast<int>(static_cast<std::size_t>(appended) - ran_.size()) / 2);
  }
  consume(static_cast<int>(static_cast<std::size_t>(appended) - ran_.size()));
  expect_ran_in_order(appended);
}

TEST_F(CommandBufferTest, CallablesLargerThanAChunkGetOneOfTheirOwn) {
  append<8>(0);
  append<2 * CommandBuffer::kChunkBytes>(1);
  append<CommandBuffer::kChunkBytes - 64>(2);
  append<8>(3);
  consume(4);
  expect_ran_in_order(4);
}

TEST_F(CommandBufferTest, ChunksAreReused) {
  std::set<std::uintptr_t> places;
  struct NotePlace {
    std::set<std::uintptr_t>* places;
    std::array<char, 200> filling{};
    void operator()() const { places->insert(reinterpret_cast<std::uintptr_t>(this)); }
  };
  constexpr int kCommands = 20'000;  // some 70 chunks' worth
  for (int i = 0; i < kCommands; ++i) {
    buffer_.append("note", NotePlace{&places});
    consume(1);
  }
  EXPECT_LT(places.size(), 3 * CommandBuffer::kChunkBytes / sizeof(NotePlace));
}

TEST_F(CommandBufferTest, RespectsAlignmentUpToACacheLine) {
  struct alignas(64) Wide {
    std::vector<std::uintptr_t>* remainders;
    void operator()() const {
      remainders->push_back(reinterpret_cast<std::uintptr_t>(this) % alignof(Wide));
    }
  };
  std::vector<std::uintptr_t> remainders;
  for (int i = 0; i < 3000; ++i) {
    buffer_.append("wide", Wide{&remainders});
    append<24>(i);
  }
  consume(6000);
  EXPECT_EQ(remainders, std::vector<std::uintptr_t>(3000, 0));
  expect_ran_in_order(3000);
}

TEST_F(CommandBufferTest, TakesMoveOnlyCallables) {
  int result = 0;
  buffer_.append("move", [&result, value = std::make_unique<int>(7)] { result = *value; });
  consume(1);
  EXPECT_EQ(result, 7);
}

TEST_F(CommandBufferTest, PopDestroysTheCallable) {
  auto token = std::make_shared<int>();
  buffer_.append("hold", [token] {});
  EXPECT_EQ(token.use_count(), 2);
  buffer_.pop();
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(CommandBufferTest, DestructorDestroysWhatWasNotPopped) {
  auto token = std::make_shared<int>();
  {
    CommandBuffer buffer;
    for (int i = 0; i < 5000; ++i) buffer.append("hold", [token] {});
    buffer.pop();
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(CommandBufferTest, AThrowingCopyLeavesTheBufferAsItWas) {
  struct Refuses {
    std::array<char, 40'000> filling{};
    Refuses() = default;
    Refuses(const Refuses&) { throw std::runtime_error("no copy"); }
    void operator()() const {}
  };
  append<100>(0);
  const Refuses refuses;
  // The second one needs a new chunk.
  EXPECT_THROW(buffer_.append("refuses", refuses), std::runtime_error);
  append<40'000>(1);
  EXPECT_THROW(buffer_.append("refuses", refuses), std::runtime_error);
  append<100>(2);
  consume(3);
  expect_ran_in_order(3);
}

// A chunk that was made for a command that threw stays empty; one that is too small for the next
// command holds nothing but the link to another.
TEST_F(CommandBufferTest, AChunkThatStayedEmptyIsPassedOver) {
  struct Refuses {
    Refuses() = default;
    Refuses(const Refuses&) { throw std::runtime_error("no copy"); }
    void operator()() const {}
    std::array<char, CommandBuffer::kChunkBytes> filling{};
  };
  append<1>(0);
  const Refuses refuses;
  EXPECT_THROW(buffer_.append("refused", refuses), std::runtime_error);
  append<2 * CommandBuffer::kChunkBytes>(1);
  append<1>(2);
  consume(3);
  expect_ran_in_order(3);
}

TEST_F(CommandBufferTest, AnEmptyBufferThatFailedOnceCanBeDestroyed) {
  struct Refuses {
    Refuses() = default;
    Refuses(const Refuses&) { throw std::runtime_error("no copy"); }
    void operator()() const {}
  };
  const Refuses refuses;
  EXPECT_THROW(buffer_.append("refuses", refuses), std::runtime_error);
}

TEST_F(CommandBufferTest, ListsTheAccessesThatACallableDeclares) {
  struct Copy {
    void operator()() const {}
    void accesses(AccessList& list) const {
      list.push_back({reinterpret_cast<void*>(0x1000), 64, AccessKind::kRead});
      list.push_back({reinterpret_cast<void*>(0x2000), 32, AccessKind::kReplace});
    }
  };
  buffer_.append("copy", Copy{});
  AccessList list;
  buffer_.front().accesses(list);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].address, reinterpret_cast<void*>(0x1000));
  EXPECT_FALSE(list[0].writes());
  EXPECT_EQ(list[1].bytes, 32U);
  EXPECT_TRUE(list[1].writes());
}

TEST_F(CommandBufferTest, ACallableWithoutAccessesListsNone) {
  append<8>(0);
  AccessList list;
  buffer_.front().accesses(list);
  EXPECT_TRUE(list.empty());
}

TEST_F(CommandBufferTest, KeepsTheNameOfEachCommand) {
  static constexpr const char* kName = "aten::add";
  buffer_.append(kName, [] {});
  EXPECT_EQ(buffer_.front().name(), kName);
}

TEST_F(CommandBufferTest, ForEachRunsTheSameCommandsAgainAndAgain) {
  for (int i = 0; i < 2000; ++i) append<100>(i);
  for (int replay = 0; replay < 3; ++replay) {
    ran_.clear();
    buffer_.for_each([](const Command& command) { command.run(); });
    expect_ran_in_order(2000);
  }
}

TEST_F(CommandBufferTest, ForEachOfAnEmptyBufferVisitsNothing) {
  int visits = 0;
  buffer_.for_each([&](const Command&) { ++visits; });
  append<8>(0);
  buffer_.pop();
  buffer_.for_each([&](const Command&) { ++visits; });
  EXPECT_EQ(visits, 0);
}

}  // namespace
}  // namespace loom
