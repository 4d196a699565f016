// SPDX-License-Identifier: BSD-3-Clause
// Messages find who waits for them: by sender and tag, whatever came before them.
#include "loom/collectives/mailbox.h"

#include "loom/collectives/peer_error.h"

#include <gtest/gtest.h>

#include "collectives/ranks.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace loom::collectives {
namespace {

using testing::on_hosts;
using testing::operation;
using testing::Rank;

/// Asks and waits; returns from whom it came.
int receive(Rank& rank, int peer, std::int64_t tag, void* to, std::size_t bytes) {
  const auto request = rank.mailbox.request(peer, tag);
  return rank.mailbox.receive(*request, to, bytes, operation("recv"));
}

/// By the hosts of each rank, of which there are up to four.
class MailboxTest : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::string hosts(std::size_t ranks) {
    return std::string(GetParam()).substr(0, ranks);
  }
};

INSTANTIATE_TEST_SUITE_P(Hosts, MailboxTest, ::testing::Values("aaaa", "abba"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(MailboxTest, LongMessagesBothWaysAtOnce) {
  on_hosts(hosts(2), [](Rank& rank) {
    std::vector<std::int32_t> mine(1'000'000), theirs(mine.size());
    std::iota(mine.begin(), mine.end(), rank.index);
    {
      const std::jthread sends([&] {
        rank.mailbox.send(1 - rank.index, 0, mine.data(), mine.size() * 4, operation("send"));
      });
      receive(rank, 1 - rank.index, 0, theirs.data(), theirs.size() * 4);
    }
    std::iota(mine.begin(), mine.end(), 1 - rank.index);
    EXPECT_EQ(theirs, mine);
  });
}

TEST_P(MailboxTest, TagsMayComeInAnotherOrder) {
  on_hosts(hosts(2), [](Rank& rank) {
    constexpr std::int64_t kTags = 20;
    for (std::int64_t tag = 0; tag < kTags; ++tag) {
      if (rank.index == 0) {
        rank.mailbox.send(1, tag, &tag, sizeof(tag), operation("send"));
      } else {
        std::int64_t got = -1;
        const std::int64_t wanted = kTags - 1 - tag;
        receive(rank, 0, wanted, &got, sizeof(got));
        EXPECT_EQ(got, wanted);
      }
    }
  });
}

TEST_P(MailboxTest, MessagesToItselfAreKept) {
  on_hosts(hosts(2), [](Rank& rank) {
    const std::vector<std::int32_t> first{1, 2, 3}, second{rank.index};
    std::vector<std::int32_t> got(3);
    rank.mailbox.send(rank.index, 7, first.data(), 12, operation("send"));
    rank.mailbox.send(rank.index, 8, second.data(), 4, operation("send"));
    receive(rank, rank.index, 8, got.data(), 4);
    EXPECT_EQ(got.front(), rank.index);
    receive(rank, rank.index, 7, got.data(), 12);
    EXPECT_EQ(got, first);
  });
}

TEST_P(MailboxTest, WaitsForAMessageToItself) {
  on_hosts(hosts(2), [](Rank& rank) {
    int got = 0;
    const std::jthread receives([&] {
      receive(rank, rank.index, 0, &got, sizeof(got));
      EXPECT_EQ(got, 5);
    });
    const int value = 5;
    rank.mailbox.send(rank.index, 0, &value, sizeof(value), operation("send"));
  });
}

TEST_P(MailboxTest, EqualTagsKeepTheirOrder) {
  on_hosts(hosts(2), [](Rank& rank) {
    for (int i = 0; i < 1000; ++i) {
      int value = i;
      if (rank.index == 0) {
        rank.mailbox.send(1, 3, &value, sizeof(value), operation("send"));
      } else {
        receive(rank, 0, 3, &value, sizeof(value));
        EXPECT_EQ(value, i);
      }
    }
  });
}

TEST_P(MailboxTest, FromAnybody) {
  on_hosts(hosts(4), [](Rank& rank) {
    if (rank.index != 0) {
      rank.mailbox.send(0, 1, &rank.index, sizeof(int), operation("send"));
      return;
    }
    std::set<int> sources;
    for (int i = 0; i < 3; ++i) {
      int value = -1;
      const int source = receive(rank, Mailbox::kAnybody, 1, &value, sizeof(value));
      EXPECT_EQ(value, source);
      sources.insert(source);
    }
    EXPECT_EQ(sources, (std::set<int>{1, 2, 3}));
  });
}

TEST_P(MailboxTest, TwoThreadsWaitForOneSender) {
  on_hosts(hosts(2), [](Rank& rank) {
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
        receive(rank, 0, tag, &value, sizeof(value));
        EXPECT_EQ(value, 2 * i + tag);
      }
    });
  });
}

TEST_P(MailboxTest, AMessageIsThatOfWhoHasAskedFirst) {
  on_hosts(hosts(2), [](Rank& rank) {
    if (rank.index == 0) {
      for (int i = 0; i < 3; ++i) rank.mailbox.send(1, 0, &i, sizeof(i), operation("send"));
      return;
    }
    const auto first = rank.mailbox.request(0, 0);
    auto dropped = rank.mailbox.request(Mailbox::kAnybody, 0);
    const auto second = rank.mailbox.request(Mailbox::kAnybody, 0);
    const auto other = rank.mailbox.request(Mailbox::kAnybody, 5);
    const auto third = rank.mailbox.request(0, 0);
    dropped.reset();
    const std::array requests{third, second, first};  // and they come the other way round
    loom::testing::on_threads(3, [&](int index) {
      int value = -1;
      rank.mailbox.receive(*requests[static_cast<std::size_t>(index)], &value, sizeof(value),
                           operation("recv"));
      EXPECT_EQ(value, 2 - index);
    });
  });
}

TEST_P(MailboxTest, AnotherSizeIsAnError) {
  on_hosts(hosts(2), [](Rank& rank) {
    std::int64_t value = 0;
    if (rank.index == 0) {
      try {
        rank.mailbox.send(1, 0, &value, 8, operation("send"));
      } catch (const PeerError& error) {
        // The other one may say so while the message is still on its way to another host.
        EXPECT_EQ(error.cause(), PeerError::Cause::kAborted);
      }
    } else {
      EXPECT_THROW(receive(rank, 0, 0, &value, 4), PeerError);
    }
  });
}

}  // namespace
}  // namespace loom::collectives
