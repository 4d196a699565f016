// SPDX-License-Identifier: BSD-3-Clause
// Random operations of random sizes, for as long as LOOM_STRESS_SECONDS says, give what one process
// computes alone, bit for bit.
#include "support/stress.h"

#include "loom/collectives/algorithms.h"

#include <gtest/gtest.h>

#include "collectives/ranks.h"
#include <cstdint>
#include <string>
#include <vector>

namespace loom::collectives {
namespace {

using loom::testing::Random;
using testing::on_hosts;
using testing::Rank;
using Values = std::vector<float>;

constexpr int kRanks = 4;

/// What a rank has in an operation: every rank can make every other one's.
Values values_of(std::uint64_t operation, int rank, std::size_t count) {
  Values values(count);
  std::uint64_t state = operation * 1000 + static_cast<std::uint64_t>(rank) + 1;
  for (float& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<float>(state >> 40) * 1e-5F;
  }
  return values;
}

Values sum(std::uint64_t operation, std::size_t count) {
  std::vector<Values> all;
  std::vector<const void*> sources;
  for (int rank = 0; rank < kRanks; ++rank) all.push_back(values_of(operation, rank, count));
  for (const Values& values : all) sources.push_back(values.data());
  Values to(count);
  combine(to.data(), sources.data(), kRanks, static_cast<std::int64_t>(count), {});
  return to;
}

void run_one(Rank& rank, std::uint64_t number, std::uint64_t kind, std::size_t count) {
  Values data = values_of(number, rank.index, count);
  const std::size_t bytes = count * sizeof(float);
  const int root = static_cast<int>(number % kRanks);
  std::vector<Values> parts(kRanks, Values(count));
  std::vector<Target> targets;
  for (Values& part : parts) targets.push_back({part.data(), bytes});
  switch (kind) {
    case 0:
      rank.run("all_reduce", [&] {
        all_reduce(rank.transport, data.data(), data.data(), static_cast<std::int64_t>(count), {});
      });
      ASSERT_EQ(data, sum(number, count));
      break;
    case 1:
      rank.run("all_gather", [&] { all_gather(rank.transport, data.data(), targets); });
      for (int peer = 0; peer < kRanks; ++peer) {
        ASSERT_EQ(parts[static_cast<std::size_t>(peer)], values_of(number, peer, count));
      }
      break;
    case 2: {
      const std::vector<Source> from(kRanks, Source{data.data(), bytes});
      Values to(count);
      rank.run("reduce_scatter", [&] { reduce_scatter(rank.transport, from, to.data(), {}); });
      ASSERT_EQ(to, sum(number, count));
      break;
    }
    case 3:
      rank.run("broadcast", [&] { broadcast(rank.transport, {data.data(), bytes}, root); });
      ASSERT_EQ(data, values_of(number, root, count));
      break;
    case 4: {
      const std::vector<Source> from(kRanks, Source{data.data(), bytes});
      rank.run("all_to_all", [&] { all_to_all(rank.transport, from, targets); });
      for (int peer = 0; peer < kRanks; ++peer) {
        ASSERT_EQ(parts[static_cast<std::size_t>(peer)], values_of(number, peer, count));
      }
      break;
    }
    case 5:
      rank.run("reduce", [&] {
        reduce(rank.transport, data.data(), data.data(), static_cast<std::int64_t>(count), {},
               root);
      });
      if (rank.index == root) {
        ASSERT_EQ(data, sum(number, count));
      }
      break;
    default:
      rank.run("barrier", [&] { barrier(rank.transport); });
  }
}

class CollectivesStressTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Hosts, CollectivesStressTest, ::testing::Values("aaaa", "aabb", "abca"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CollectivesStressTest, RandomOperations) {
  const loom::testing::StressClock clock;
  on_hosts(GetParam(), [&](Rank& rank) {
    Random random(7);  // the same on all ranks
    for (std::uint64_t number = 0;; ++number) {
      // Rank 0 says when it is enough, so that all end with the same operation.
      std::int32_t more = clock.running() ? 1 : 0;
      rank.run("broadcast", [&] { broadcast(rank.transport, {&more, sizeof(more)}, 0); });
      if (more == 0) break;
      const std::size_t most = random.one_in(10) ? 300'000 : 6'000;
      const std::size_t count = random.below(most);
      run_one(rank, number, random.below(7), count);
    }
  });
}

}  // namespace
}  // namespace loom::collectives
