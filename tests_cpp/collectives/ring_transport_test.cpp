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
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace loom::collectives {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::operation;
using testing::Rank;

constexpr const char* kNothing = "nothing was thrown";

/// What a rank's operation throws.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const PeerError& error) {
    return error.what();
  }
  return kNothing;
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

/// Runs an operation of four bytes from or to `root`.
void run_rooted(Rank& rank, const char* literal, int root) {
  const std::string name = literal;
  std::array<float, 3> data{}, all{};
  const Target whole{data.data(), sizeof(float)};
  std::vector<Source> from;
  std::vector<Target> to;
  if (rank.index == root) {
    for (float& each : all) {
      from.push_back({&each, sizeof(float)});
      to.push_back({&each, sizeof(float)});
    }
    from.resize(static_cast<std::size_t>(rank.count));
    to.resize(from.size());
  }
  Operation what = operation(literal, rank.number++, 0.2);
  what.root = root;
  rank.transport.begin(what);
  if (name == "broadcast") broadcast(rank.transport, whole, root);
  if (name == "reduce") reduce(rank.transport, data.data(), data.data(), 1, {}, root);
  if (name == "scatter") scatter(rank.transport, from, whole, root);
  if (name == "gather") gather(rank.transport, {data.data(), sizeof(float)}, to, root);
  rank.transport.finish();
}

const char* const kRooted[] = {"broadcast", "reduce", "scatter", "gather"};

TEST(RingTransportTest, DifferentRootsAreAnErrorOnAllRanks) {
  for (const char* const name : kRooted) {
    for (const std::array<int, 3> roots : {std::array{0, 1, 0}, {1, 0, 0}, {0, 0, 1}, {2, 2, 1}}) {
      for (const int ranks : {2, 3}) {
        if (ranks == 2 && (roots[0] == roots[1] || roots[0] > 1)) continue;
        std::vector<std::string> errors(static_cast<std::size_t>(ranks));
        on_ranks(ranks, [&](Rank& rank) {
          const auto index = static_cast<std::size_t>(rank.index);
          errors[index] = error_of([&] {
            run_rooted(rank, name, roots[index]);
            rank.run("barrier", [&] { barrier(rank.transport); });
          });
        });
        // A rank that gets nothing sees the sender's next operation, or the end of its time.
        for (const std::string& error : errors) {
          EXPECT_THAT(error, AnyOf(HasSubstr("expected the same root on all ranks"),
                                   HasSubstr("expected the same operations"),
                                   HasSubstr("the timeout is over")))
              << name << " on " << ranks;
          EXPECT_THAT(error, HasSubstr(std::string(name) + " (number 0, root ")) << ranks;
        }
      }
    }
  }
}

TEST(RingTransportTest, TwoRootsAreToldOfTheOperationBothHaveEnded) {
  std::array<std::string, 2> errors;
  on_ranks(2, [&](Rank& rank) {
    errors[static_cast<std::size_t>(rank.index)] = error_of([&] {
      run_rooted(rank, "broadcast", rank.index);
      run_rooted(rank, "broadcast", 0);
      rank.run("barrier", [&] { barrier(rank.transport); });
    });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("broadcast (number 0, root 0) on rank 0"),
                             HasSubstr("broadcast (number 0, root 1) on rank 1")));
  }
}

TEST(RingTransportTest, TheEndOfTheGroupFindsWhatNobodyHasRead) {
  std::array<std::string, 2> errors;
  std::latch done(2);
  on_ranks(2, [&](Rank& rank) {
    std::string& error = errors[static_cast<std::size_t>(rank.index)];
    rank.run("barrier", [&] { barrier(rank.transport); });
    // Who comes second may see it at once.
    error = error_of([&] { run_rooted(rank, "broadcast", rank.index); });
    done.arrive_and_wait();
    if (error == kNothing) error = error_of([&] { rank.transport.check_unread(); });
  });
  EXPECT_THAT(errors, ::testing::Contains(AllOf(HasSubstr("expected the same root on all ranks"),
                                                HasSubstr("root 0) on rank 0"),
                                                HasSubstr("root 1) on rank 1"))));
}

TEST(RingTransportTest, AnUnmatchedOperationOfAnotherRankIsNoneToBeRead) {
  std::latch done(1);
  const Descriptor segment = create_segment(2);
  Rank first(segment, 0, 2), second(segment, 1, 2);
  loom::testing::on_threads(2, [&](int index) {
    Rank& rank = index == 0 ? first : second;
    rank.run("barrier", [&] { barrier(rank.transport); });
    if (index == 1) {
      run_rooted(second, "broadcast", 1);  // ends without the other one
      done.count_down();
    } else {
      done.wait();
      first.transport.check_unread();
    }
  });
}

TEST(RingTransportTest, ARankThatIsAheadIsNoError) {
  on_ranks(3, [&](Rank& rank) {
    for (int i = 0; i < 300; ++i) {
      run_rooted(rank, kRooted[i % 4], i % 3);
      if (i % 7 == 0) rank.run("barrier", [&] { barrier(rank.transport); });
    }
    rank.transport.check_unread();
  });
}

TEST(RingTransportTest, DifferentDtypesAreAnErrorThatSaysBoth) {
  std::array<std::string, 2> errors;
  on_ranks(2, [&](Rank& rank) {
    errors[static_cast<std::size_t>(rank.index)] = error_of([&] {
      float value = 0;
      std::array<float, 2> all{};
      Operation what = operation("all_gather", rank.number++);
      what.dtype = static_cast<std::uint8_t>(rank.index);
      what.dtype_name = [](std::uint8_t dtype) { return dtype == 0 ? "Float" : "Int"; };
      rank.transport.begin(what);
      all_gather(rank.transport, &value, std::array<Target, 2>{{{&all[0], 4}, {&all[1], 4}}});
      rank.transport.finish();
    });
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("expected the same dtypes, reductions and factors"),
                             HasSubstr("of Float on rank 0"), HasSubstr("of Int on rank 1")));
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
