// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong between ranks is an error on each of them, which says what each was doing.
#include "loom/collectives/ring_transport.h"

#include "loom/collectives/algorithms.h"
#include "loom/collectives/peer_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/ranks.h"
#include <array>
#include <cstddef>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace loom::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::operation;
using testing::Rank;

/// What a rank's operation throws.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const PeerError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RingTransportTest, DifferentSizesAreAnErrorOnAllRanks) {
  std::array<std::string, 2> errors;
  on_ranks(2, [&](Rank& rank) {
    std::vector<float> data(rank.index == 0 ? 10 : 11);
    errors[static_cast<std::size_t>(rank.index)] = error_of([&] {
      rank.run("all_reduce", [&] {
        all_reduce(rank.transport, data.data(), data.data(), static_cast<std::int64_t>(data.size()),
                   {});
      });
      rank.run("barrier", [&] { barrier(rank.transport); });
    });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("expected the same operations with the same sizes"),
                             HasSubstr("with 40 to come"), HasSubstr("with 44 to come")));
  }
}

TEST(RingTransportTest, SizesThatDifferByWholePiecesAreAnError) {
  std::array<std::string, 2> errors;
  on_ranks(2, [&](Rank& rank) {
    std::vector<std::byte> data(rank.index == 0 ? 131'072 : 65'536);
    errors[static_cast<std::size_t>(rank.index)] = error_of([&] {
      Operation operation = testing::operation("broadcast");
      operation.bytes = data.size();
      rank.transport.begin(operation);
      broadcast(rank.transport, {data.data(), data.size()}, 0);
      rank.transport.finish();
      rank.run("barrier", [&] { barrier(rank.transport); });
    });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("131072"), HasSubstr("65536")));
  }
}

TEST(RingTransportTest, WhoHasGotItsPartMayLeave) {
  const Descriptor segment = create_segment(3);
  Rank root(segment, 0, 3), third(segment, 2, 3);
  auto second = std::make_unique<Rank>(segment, 1, 3);
  const std::vector<std::byte> part(4 << 20);
  std::latch left(1);
  const auto get = [&](Rank& rank) {
    std::vector<std::byte> to(part.size());
    rank.run("scatter", [&] { scatter(rank.transport, {}, {to.data(), to.size()}, 0); });
  };
  loom::testing::on_threads(3, [&](int index) {
    if (index == 0) {
      const std::vector<Source> from(3, Source{part.data(), part.size()});
      std::vector<std::byte> to(part.size());
      root.run("scatter", [&] { scatter(root.transport, from, {to.data(), to.size()}, 0); });
    } else if (index == 1) {
      get(*second);
      second.reset();
      left.count_down();
    } else {
      left.wait();
      get(third);
    }
  });
}

TEST(RingTransportTest, HeadersOfMessagesWithoutBytesMakeRoom) {
  for (const char* const hosts : {"aa", "ab"}) {
    testing::on_hosts(hosts, [](Rank& self) {
      // More than there is room for, one way only.
      const std::size_t times =
          self.member->outgoing(Lane::kCollective, 1 - self.index).capacity() / 64 + 1000;
      for (std::size_t i = 0; i < times; ++i) {
        self.run("broadcast", [&] { broadcast(self.transport, {}, 0); });
      }
    });
  }
}

TEST(RingTransportTest, DifferentOperationsAreAnErrorOnAllRanks) {
  std::array<std::string, 2> errors;
  on_ranks(2, [&](Rank& rank) {
    errors[static_cast<std::size_t>(rank.index)] = error_of([&] {
      std::vector<float> data(4);
      rank.run("barrier", [&] { barrier(rank.transport); });
      rank.run(rank.index == 0 ? "all_reduce" : "all_to_all",
               [&] { all_reduce(rank.transport, data.data(), data.data(), 4, {}); });
      rank.run("barrier", [&] { barrier(rank.transport); });
    });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("all_reduce (number 1)"), HasSubstr("all_to_all (number 1)")));
  }
}

TEST(RingTransportTest, ARankThatDoesNotComeIsNamed) {
  const Descriptor segment = create_segment(3);
  Rank first(segment, 0, 3), second(segment, 1, 3), third(segment, 2, 3);
  loom::testing::on_threads(2, [&](int index) {
    Rank& rank = index == 0 ? first : second;
    rank.transport.begin(operation("barrier", 0, 0.2));
    const std::string error = error_of([&] { barrier(rank.transport); });
    EXPECT_THAT(error, HasSubstr("rank 2"));
  });
  EXPECT_THROW(third.transport.begin(operation("barrier")), PeerError);
}

TEST(RingTransportTest, WhatALeavingRankHasSentArrives) {
  const Descriptor segment = create_segment(2);
  Rank first(segment, 0, 2);
  std::vector<std::int32_t> data(1000, 5);
  {
    Rank second(segment, 1, 2);
    second.run("broadcast",
               [&] { broadcast(second.transport, {data.data(), data.size() * 4}, 1); });
  }
  std::vector<std::int32_t> got(1000);
  first.run("broadcast", [&] { broadcast(first.transport, {got.data(), got.size() * 4}, 1); });
  EXPECT_EQ(got, data);
}

}  // namespace
}  // namespace loom::collectives
