// SPDX-License-Identifier: BSD-3-Clause
// What a grid costs: publishing it, and running it beside the plain loop over its blocks.
#include "loom/base/futex.h"
#include "loom/device/cores.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace loom {
namespace {

int host_cores() { return std::max(2, static_cast<int>(std::thread::hardware_concurrency())); }

void busy_for(std::int64_t ns) {
  const std::int64_t end = now_ns() + ns;
  while (now_ns() < end) {
  }
}

/// A grid of empty blocks, one after the other, so that the helpers stay awake.
void publish_empty_grid(benchmark::State& state) {
  Cores cores(host_cores());
  for (auto _ : state) cores.run(state.range(0), [](std::int64_t) {});
}
BENCHMARK(publish_empty_grid)->Arg(1)->Arg(2)->Arg(64);

/// As above, after a pause in which the helpers have gone to sleep. What counts is the time that
/// the publisher spends before its own first block.
void publish_to_sleeping_helpers(benchmark::State& state) {
  Cores cores(host_cores());
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const std::thread::id publisher = std::this_thread::get_id();
    std::int64_t first = 0;
    const std::int64_t start = now_ns();
    cores.run(2, [&](std::int64_t) {
      if (std::this_thread::get_id() == publisher && first == 0) first = now_ns();
    });
    state.SetIterationTime(static_cast<double>(std::max(first, start) - start) * 1e-9);
  }
}
BENCHMARK(publish_to_sleeping_helpers)->UseManualTime()->Iterations(2000);

/// 16 blocks of the given microseconds: the speedup over one core.
void run_grid(benchmark::State& state) {
  constexpr int kBlocks = 16;
  Cores cores(host_cores());
  const std::int64_t block_ns = state.range(0) * 1000;
  for (auto _ : state) cores.run(kBlocks, [&](std::int64_t) { busy_for(block_ns); });
  state.counters["speedup"] = benchmark::Counter(
      static_cast<double>(kBlocks * block_ns) * 1e-9 * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}
BENCHMARK(run_grid)->Arg(1)->Arg(10)->Arg(100)->UseRealTime();

}  // namespace
}  // namespace loom
