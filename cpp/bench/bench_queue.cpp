// SPDX-License-Identifier: BSD-3-Clause
// What a queue costs: submitting a command, waking its worker, waiting for it, events.
#include "loom/base/futex.h"
#include "loom/device/command_trace.h"
#include "loom/device/cores.h"
#include "loom/device/event.h"
#include "loom/device/queue.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace loom {
namespace {

constexpr int kBatch = 1000;

struct OneQueue {
  Cores cores{1};
  Queue queue{QueueId{0, 0, 0}, cores};
};

void report_median(benchmark::State& state, std::vector<std::int64_t>& samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](std::size_t percent) {
    return static_cast<double>(samples[(samples.size() - 1) * percent / 100]);
  };
  state.counters["median_ns"] = at(50);
  state.counters["p90_ns"] = at(90);
}

/// Nanoseconds of the caller for one command, whose callable has `Bytes` bytes; the worker is awake
/// and consumes beside it.
template <std::size_t Bytes>
void submit_empty_command(benchmark::State& state) {
  OneQueue one;
  std::array<char, Bytes> filling{};
  std::vector<std::int64_t> samples;
  for (auto _ : state) {
    one.queue.submit("warm", [] {});
    const std::int64_t start = now_ns();
    for (int i = 0; i < kBatch; ++i) {
      one.queue.submit("empty", [filling] { benchmark::DoNotOptimize(&filling); });
    }
    const std::int64_t elapsed = now_ns() - start;
    state.SetIterationTime(static_cast<double>(elapsed) * 1e-9 / kBatch);
    samples.push_back(elapsed / kBatch);
    one.queue.synchronize();
  }
  report_median(state, samples);
}
BENCHMARK(submit_empty_command<1>)->UseManualTime()->Iterations(1000);
BENCHMARK(submit_empty_command<200>)->UseManualTime()->Iterations(1000);

/// As above while a profile is taken.
void submit_traced_command(benchmark::State& state) {
  OneQueue one;
  std::vector<std::int64_t> samples;
  for (auto _ : state) {
    CommandTrace::instance().start();
    one.queue.submit("warm", [] {});
    const std::int64_t start = now_ns();
    for (int i = 0; i < kBatch; ++i) one.queue.submit("empty", [] {});
    const std::int64_t elapsed = now_ns() - start;
    state.SetIterationTime(static_cast<double>(elapsed) * 1e-9 / kBatch);
    samples.push_back(elapsed / kBatch);
    benchmark::DoNotOptimize(CommandTrace::instance().stop().spans.size());
  }
  report_median(state, samples);
}
BENCHMARK(submit_traced_command)->UseManualTime()->Iterations(1000);

/// From the call of submit() to the first instruction of the command.
void start_latency(benchmark::State& state, std::chrono::microseconds idle_before) {
  OneQueue one;
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> caller;
  for (auto _ : state) {
    one.queue.synchronize();
    if (idle_before.count() > 0) std::this_thread::sleep_for(idle_before);
    std::int64_t started = 0;
    const std::int64_t submitted = now_ns();
    one.queue.submit("note", [&started] { started = now_ns(); });
    caller.push_back(now_ns() - submitted);
    one.queue.synchronize();
    samples.push_back(started - submitted);
    state.SetIterationTime(static_cast<double>(started - submitted) * 1e-9);
  }
  report_median(state, samples);
  std::sort(caller.begin(), caller.end());
  state.counters["caller_ns"] = static_cast<double>(caller[caller.size() / 2]);
}
BENCHMARK_CAPTURE(start_latency, spinning_worker, std::chrono::microseconds(0))
    ->UseManualTime()
    ->Iterations(10000);
BENCHMARK_CAPTURE(start_latency, sleeping_worker, std::chrono::microseconds(300))
    ->UseManualTime()
    ->Iterations(2000);

/// One command and a wait for it: a launch whose result is looked at.
void submit_and_synchronize(benchmark::State& state) {
  OneQueue one;
  for (auto _ : state) {
    one.queue.submit("empty", [] {});
    one.queue.synchronize();
  }
}
BENCHMARK(submit_and_synchronize);

void record_and_block(benchmark::State& state) {
  OneQueue first;
  OneQueue second;
  QueueEvent event;
  for (auto _ : state) {
    first.queue.submit("empty", [] {});
    event.record(first.queue);
    event.block(second.queue);
  }
  second.queue.synchronize();
}
BENCHMARK(record_and_block);

/// The price of an idle worker while another one is used: none is hoped for.
void synchronize_idle_queue(benchmark::State& state) {
  OneQueue one;
  one.queue.submit("empty", [] {});
  one.queue.synchronize();
  for (auto _ : state) one.queue.synchronize();
}
BENCHMARK(synchronize_idle_queue);

}  // namespace
}  // namespace loom
