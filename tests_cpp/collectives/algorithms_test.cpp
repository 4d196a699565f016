// SPDX-License-Identifier: BSD-3-Clause
// Each operation gives every rank what its header says, for sizes around those at which it changes
// its ways, and any number of ranks on any hosts.
#include "loom/collectives/algorithms.h"

#include <gtest/gtest.h>

#include "collectives/ranks.h"
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace loom::collectives {
namespace {

using testing::on_hosts;
using testing::on_ranks;
using testing::Rank;
using Values = std::vector<std::int32_t>;

/// Of a rank: all different, and different from those of other ranks.
Values values_of(int rank, std::size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), 1'000'003 * rank);
  return values;
}

Source source(const Values& values) { return {values.data(), values.size() * 4}; }
Target target(Values& values) { return {values.data(), values.size() * 4}; }

const Combination kSum{Element::kInt32, Reduction::kSum};

struct Case {
  std::string hosts;  // of each rank
  std::size_t count;
};

class AlgorithmsTest : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] const std::string& hosts() const { return GetParam().hosts; }
  [[nodiscard]] int ranks() const { return static_cast<int>(hosts().size()); }
  [[nodiscard]] std::size_t count() const { return GetParam().count; }
  /// Sizes that differ from rank to rank.
  [[nodiscard]] std::size_t count_of(int rank) const {
    return rank == 1 ? 0 : count() + static_cast<std::size_t>(rank) * 7;
  }
  [[nodiscard]] Values sum(std::size_t size) const {
    Values all(size, 0);
    for (int rank = 0; rank < ranks(); ++rank) {
      const Values values = values_of(rank, size);
      for (std::size_t i = 0; i < size; ++i) all[i] += values[i];
    }
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Sizes, AlgorithmsTest,
    ::testing::Values(Case{"a", 10}, Case{"aa", 0}, Case{"aa", 1}, Case{"aa", 4096},
                      Case{"aa", 4097}, Case{"aa", 40'000}, Case{"aa", 1'000'000}, Case{"aaa", 5},
                      Case{"aaa", 4099}, Case{"aaa", 100'001}, Case{"aaaa", 1},
                      Case{"aaaa", 65'536}, Case{"aaaaa", 300'000}, Case{"aaaaaaa", 12'345},
                      Case{"ab", 0}, Case{"ab", 1}, Case{"ab", 4097}, Case{"ab", 1'000'000},
                      Case{"aab", 4099}, Case{"abc", 100'001}, Case{"aabb", 5},
                      Case{"aabb", 300'000}, Case{"abab", 65'536}, Case{"aaab", 65'537},
                      Case{"baabacb", 12'345}),
    [](const ::testing::TestParamInfo<Case>& info) {
      return "Hosts_" + info.param.hosts + "_" + std::to_string(info.param.count);
    });

TEST_P(AlgorithmsTest, AllReduce) {
  on_hosts(hosts(), [&](Rank& rank) {
    const Values from = values_of(rank.index, count());
    Values to(count());
    rank.run("all_reduce", [&] {
      all_reduce(rank.transport, from.data(), to.data(), static_cast<std::int64_t>(count()), kSum);
    });
    EXPECT_EQ(to, sum(count()));
    EXPECT_EQ(from, values_of(rank.index, count()));
  });
}

TEST_P(AlgorithmsTest, AllReduceInPlaceAgainAndAgain) {
  on_hosts(hosts(), [&](Rank& rank) {
    for (int turn = 0; turn < 3; ++turn) {
      Values data = values_of(rank.index, count());
      rank.run("all_reduce", [&] {
        all_reduce(rank.transport, data.data(), data.data(), static_cast<std::int64_t>(count()),
                   kSum);
      });
      EXPECT_EQ(data, sum(count()));
    }
  });
}

TEST_P(AlgorithmsTest, Reduce) {
  for (int root = 0; root < ranks(); ++root) {
    on_hosts(hosts(), [&](Rank& rank) {
      Values data = values_of(rank.index, count());
      rank.run("reduce", [&] {
        reduce(rank.transport, data.data(), data.data(), static_cast<std::int64_t>(count()), kSum,
               root);
      });
      EXPECT_EQ(data, rank.index == root ? sum(count()) : values_of(rank.index, count()));
    });
  }
}

TEST_P(AlgorithmsTest, ReduceScatterOfUnequalParts) {
  on_hosts(hosts(), [&](Rank& rank) {
    std::vector<Values> parts;
    std::vector<Source> from;
    for (int peer = 0; peer < ranks(); ++peer) {
      parts.push_back(values_of(rank.index, count_of(peer)));
    }
    for (const Values& part : parts) from.push_back(source(part));
    Values to(count_of(rank.index));
    rank.run("reduce_scatter", [&] { reduce_scatter(rank.transport, from, to.data(), kSum); });
    EXPECT_EQ(to, sum(count_of(rank.index)));
  });
}

TEST_P(AlgorithmsTest, AllGatherOfUnequalParts) {
  on_hosts(hosts(), [&](Rank& rank) {
    const Values from = values_of(rank.index, count_of(rank.index));
    std::vector<Values> parts;
    std::vector<Target> to;
    for (int peer = 0; peer < ranks(); ++peer) parts.emplace_back(count_of(peer));
    for (Values& part : parts) to.push_back(target(part));
    rank.run("all_gather", [&] { all_gather(rank.transport, from.data(), to); });
    for (int peer = 0; peer < ranks(); ++peer) {
      EXPECT_EQ(parts[static_cast<std::size_t>(peer)], values_of(peer, count_of(peer)));
    }
  });
}

TEST_P(AlgorithmsTest, GatherAndScatter) {
  for (int root = 0; root < ranks(); ++root) {
    on_hosts(hosts(), [&](Rank& rank) {
      const Values own = values_of(rank.index, count_of(rank.index));
      std::vector<Values> parts;
      std::vector<Target> to;
      std::vector<Source> back;
      for (int peer = 0; peer < ranks(); ++peer) parts.emplace_back(count_of(peer));
      if (rank.index == root) {
        for (Values& part : parts) to.push_back(target(part));
        for (Values& part : parts) back.push_back(source(part));
      }
      rank.run("gather", [&] { gather(rank.transport, source(own), to, root); });
      if (rank.index == root) {
        for (int peer = 0; peer < ranks(); ++peer) {
          EXPECT_EQ(parts[static_cast<std::size_t>(peer)], values_of(peer, count_of(peer)));
        }
      }
      Values again(own.size());
      rank.run("scatter", [&] { scatter(rank.transport, back, target(again), root); });
      EXPECT_EQ(again, own);
    });
  }
}

TEST_P(AlgorithmsTest, Broadcast) {
  for (int root = 0; root < ranks(); ++root) {
    on_hosts(hosts(), [&](Rank& rank) {
      Values data = values_of(rank.index, count());
      rank.run("broadcast", [&] { broadcast(rank.transport, target(data), root); });
      EXPECT_EQ(data, values_of(root, count()));
    });
  }
}

TEST_P(AlgorithmsTest, AllToAll) {
  on_hosts(hosts(), [&](Rank& rank) {
    std::vector<Values> parts, received;
    std::vector<Source> from;
    std::vector<Target> to;
    for (int peer = 0; peer < ranks(); ++peer) {
      parts.push_back(values_of(rank.index * 10 + peer, count_of(peer)));
      received.emplace_back(count_of(rank.index));
    }
    for (const Values& part : parts) from.push_back(source(part));
    for (Values& part : received) to.push_back(target(part));
    rank.run("all_to_all", [&] { all_to_all(rank.transport, from, to); });
    for (int peer = 0; peer < ranks(); ++peer) {
      EXPECT_EQ(received[static_cast<std::size_t>(peer)],
                values_of(peer * 10 + rank.index, count_of(rank.index)));
    }
  });
}

TEST_P(AlgorithmsTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived{0};
  on_hosts(hosts(), [&](Rank& rank) {
    for (int turn = 1; turn <= 3; ++turn) {
      arrived.fetch_add(1);
      rank.run("barrier", [&] { barrier(rank.transport); });
      EXPECT_GE(arrived.load(), turn * ranks());
      rank.run("barrier", [&] { barrier(rank.transport); });
    }
  });
}

TEST(AlgorithmsManyRanksTest, APieceAndItsHeaderFitIntoTheSmallestRing) {
  on_ranks(33, [](Rank& rank) {
    Values data = values_of(rank.index, 40'000);
    rank.run("broadcast", [&] { broadcast(rank.transport, target(data), 32); });
    EXPECT_EQ(data, values_of(32, 40'000));
  });
}

TEST(AlgorithmsOrderTest, SumsAreThoseOfTheOrderOfRanksWhereverTheyAreCut) {
  for (const std::size_t count : {std::size_t{64}, std::size_t{50'000}}) {
    on_hosts("abba", [&](Rank& rank) {
      const auto value = [](int of, std::size_t i) {
        return 1.0F / static_cast<float>(1 + of + i % 977);
      };
      std::vector<float> data(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = value(rank.index, i);
        expected[i] = ((value(0, i) + value(1, i)) + value(2, i)) + value(3, i);
      }
      rank.run("all_reduce", [&] {
        all_reduce(rank.transport, data.data(), data.data(), static_cast<std::int64_t>(count), {});
      });
      EXPECT_EQ(data, expected);
    });
  }
}

}  // namespace
}  // namespace loom::collectives
