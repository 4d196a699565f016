// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/placement.h"

#include "loom/base/futex.h"

#include <gtest/gtest.h>

#include "support/affinity.h"
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace loom::detail {
namespace {

constexpr std::int64_t kLimit = 1'000'000;

/// Two processors that this process may use: the host's, and the other one.
struct Pair {
  int host, other;
};

std::optional<Pair> two_processors() {
  const std::vector<int> cpus = testing::allowed();
  if (cpus.size() < 2) return std::nullopt;
  return Pair{cpus[0], cpus[1]};
}

/// Runs `body` on a thread of its own that is bound to `cpu`.
template <class Body>
void on_processor(int cpu, Body&& body) {
  std::thread([&] {
    testing::bind_to(cpu);
    body();
  }).join();
}

/// A helper on `cpu` has just spun for `times` of its limit.
void spin_on(Placement& placement, int cpu, std::int64_t times) {
  on_processor(cpu, [&] {
    const std::int64_t now = now_ns();
    placement.note_spin(now - times * kLimit, now, kLimit);
  });
}

/// Whether a worker on the host's processor moves, while `hosts` wait, after a spin on `calm`.
bool leaves(Placement& placement, const Pair& pair, int hosts, int calm, std::int64_t times,
            std::int64_t moved_ns) {
  on_processor(pair.host, [&] { placement.note_host(); });
  spin_on(placement, calm, times);
  const std::int64_t before = moved_ns;
  on_processor(pair.host, [&] { placement.leave_host(hosts, &moved_ns); });
  return moved_ns != before;
}

TEST(PlacementTest, AWorkerLeavesAHostForAProcessorThatWasCalm) {
  const auto pair = two_processors();
  if (!pair) GTEST_SKIP() << "one processor";
  Placement placement(true);
  // What is calm is so for a millisecond, and a busy machine may take longer to get there.
  bool left = false;
  for (int i = 0; i < 1000 && !left; ++i) left = leaves(placement, *pair, 1, pair->other, 1, 0);
  EXPECT_TRUE(left);
  EXPECT_FALSE(leaves(placement, *pair, 0, pair->other, 1, 0)) << "no host waits";
  EXPECT_FALSE(leaves(placement, *pair, 1, pair->host, 1, 0)) << "the host's own was calm";
  EXPECT_FALSE(leaves(placement, *pair, 1, pair->other, PlacementLimits::kCalmSpins, 0))
      << "somebody else wanted it";
  EXPECT_FALSE(leaves(placement, *pair, 1, pair->other, 1, now_ns())) << "it has just moved";
}

TEST(PlacementTest, AWorkerElsewhereThanTheHostStays) {
  const auto pair = two_processors();
  if (!pair) GTEST_SKIP() << "one processor";
  Placement placement(true);
  on_processor(pair->host, [&] { placement.note_host(); });
  spin_on(placement, pair->other, 1);
  std::int64_t moved_ns = 0;
  on_processor(pair->other, [&] { placement.leave_host(1, &moved_ns); });
  EXPECT_EQ(moved_ns, 0);
}

TEST(PlacementTest, SwitchedOffNobodyIsInAnybodysWay) {
  const auto pair = two_processors();
  if (!pair) GTEST_SKIP() << "one processor";
  Placement placement(false);
  EXPECT_FALSE(leaves(placement, *pair, 1, pair->other, 1, 0));
  on_processor(pair->host, [&] {
    placement.note_publisher(pair->host);
    placement.note_host();
    EXPECT_FALSE(placement.in_the_way(pair->host));
    EXPECT_FALSE(placement.host_on(pair->host));
    Placement::Helper helper(placement);
    helper.begin(true, true);
    helper.found_nothing(0);
    EXPECT_EQ(testing::allowed(), std::vector<int>{pair->host});
  });
}

TEST(PlacementTest, AHelperThatComesTooLateForItsPublisherGoesElsewhereWhileAHostWaits) {
  if (!two_processors()) GTEST_SKIP() << "one processor";
  Placement placement(true);
  std::thread([&] {
    const std::vector<int> before = testing::allowed();
    Placement::Helper helper(placement);
    helper.begin(true, true);
    // The system may move this thread between the note and the look.
    for (int i = 0; i < 1000 && testing::allowed() == before; ++i) {
      placement.note_publisher(::sched_getcpu());
      helper.found_nothing(0);
    }
    EXPECT_EQ(testing::allowed().size(), before.size() - 1);
    helper.begin(false, false);
    EXPECT_EQ(testing::allowed(), before) << "no host waits any more";
  }).join();
}

}  // namespace
}  // namespace loom::detail
