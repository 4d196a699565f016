// SPDX-License-Identifier: BSD-3-Clause
// Messages find who waits for them: by sender and tag, whatever came before them.
#include "loom/collectives/mailbox.h"

#include "loom/collectives/peer_error.h"

#include <gtest/gtest.h>

#include "collectives/ranks.h"
#include <cstdint>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace loom::collectives {
namespace {

using testing::on_ranks;
using testing::operation;
using testing::Rank;

TEST(MailboxTest, LongMessagesBothWaysAtOnce) {
  on_ranks(2, [](Rank& rank) {
    std::vector<std::int32_t> mine(1'000'000), theirs(mine.size());
    std::iota(mine.begin(), mine.end(), rank.index);
    {
      const std::jthread sends([&] {
        rank.mailbox.send(1 - rank.index, 0, mine.data(), mine.size() * 4, operation("send"));
      });
      rank.mailbox.receive(1 - rank.index, 0, theirs.data(), theirs.size() * 4, operation("recv"));
    }
    std::iota(mine.begin(), mine.end(), 1 - rank.index);
    EXPECT_EQ(theirs, mine);
  });
}

TEST(MailboxTest, TagsMayComeInAnotherOrder) {
  on_ranks(2, [](Rank& rank) {
    constexpr std::int64_t kTags = 20;
    for (std::int64_t tag = 0; tag < kTags; ++tag) {
      if (rank.index == 0) {
        rank.mailbox.send(1, tag, &tag, sizeof(tag), operation("send"));
      } else {
        std::int64_t got = -1;
        const std::int64_t wanted = kTags - 1 - tag;
        rank.mailbox.receive(0, wanted, &got, sizeof(got), operation("recv"));
        EXPECT_EQ(got, wanted);
      }
    }
  });
}

TEST(MailboxTest, MessagesToItselfAreKept) {
  on_ranks(2, [](Rank& rank) {
    const std::vector<std::int32_t> first{1, 2, 3}, second{rank.index};
    std::vector<std::int32_t> got(3);
    rank.mailbox.send(rank.index, 7, first.data(), 12, operation("send"));
    rank.mailbox.send(rank.index, 8, second.data(), 4, operation("send"));
    rank.mailbox.receive(rank.index, 8, got.data(), 4, operation("recv"));
    EXPECT_EQ(got.front(), rank.index);
    rank.mailbox.receive(rank.index, 7, got.data(), 12, operation("recv"));
    EXPECT_EQ(got, first);
  });
}

TEST(MailboxTest, WaitsForAMessageToItself) {
  on_ranks(2, [](Rank& rank) {
    int got = 0;
    const std::jthread receives([&] {
      rank.mailbox.receive(rank.index, 0, &got, sizeof(got), operation("recv"));
      EXPECT_EQ(got, 5);
    });
    const int value = 5;
    rank.mailbox.send(rank.index, 0, &value, sizeof(value), operation("send"));
  });
}

TEST(MailboxTest, EqualTagsKeepTheirOrder) {
  on_ranks(2, [](Rank& rank) {
    for (int i = 0; i < 1000; ++i) {
      int value = i;
      if (rank.index == 0) {
        rank.mailbox.send(1, 3, &value, sizeof(value), operation("send"));
      } else {
        rank.mailbox.receive(0, 3, &value, sizeof(value), operation("recv"));
        EXPECT_EQ(value, i);
      }
    }
  });
}

TEST(MailboxTest, FromAnybody) {
  on_ranks(4, [](Rank& rank) {
    if (rank.index != 0) {
      rank.mailbox.send(0, 1, &rank.index, sizeof(int), operation("send"));
      return;
    }
    std::set<int> sources;
    for (int i = 0; i < 3; ++i) {
      int value = -1;
      const int source = rank.mailbox.receive_any(1, &value, sizeof(value), operation("recv"));
      EXPECT_EQ(value, source);
      sources.insert(source);
    }
    EXPECT_EQ(sources, (std::set<int>{1, 2, 3}));
  });
}

TEST(MailboxTest, TwoThreadsWaitForOneSender) {
  on_ranks(2, [](Rank& rank) {
    constexpr int kMessages = 200;
    if (rank.index == 0) {
      for (int i = 0; i < 2 * kMessages; ++i) {
        rank.mailbox.send(1, i % 2, &i, sizeof(i), operation("send"));
      }
      return;
    }
    loom::testing::on_threads(2, [&](int tag) {
      for (int i = 0; i < kMessages; ++i) {
        int value = -1;
        rank.mailbox.receive(0, tag, &value, sizeof(value), operation("recv"));
        EXPECT_EQ(value, 2 * i + tag);
      }
    });
  });
}

TEST(MailboxTest, AnotherSizeIsAnError) {
  on_ranks(2, [](Rank& rank) {
    std::int64_t value = 0;
    if (rank.index == 0) {
      rank.mailbox.send(1, 0, &value, 8, operation("send"));
    } else {
      EXPECT_THROW(rank.mailbox.receive(0, 0, &value, 4, operation("recv")), PeerError);
    }
  });
}

}  // namespace
}  // namespace loom::collectives
