// SPDX-License-Identifier: BSD-3-Clause
// What recording pointwise operators costs the caller, and what a chain costs until it has run. The
// arguments are the number of operators in a chain and of elements in a tensor.
#include "loom/base/futex.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/fusion/recorder.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace loom::fusion {
namespace {

/// A float tensor of one dimension, aligned as allocations of a device are.
class Tensor {
 public:
  explicit Tensor(std::int64_t numel)
      : numel_(numel),
        data_(static_cast<float*>(::operator new(bytes(), std::align_val_t{kAlignment}))) {
    std::fill_n(data_, numel, 1.0F);
  }
  ~Tensor() { ::operator delete(data_, std::align_val_t{kAlignment}); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  [[nodiscard]] TensorAccess access() const {
    return {.data = reinterpret_cast<std::byte*>(data_),
            .dtype = DType::kFloat,
            .sizes = {&numel_, 1},
            .strides = {&kUnit, 1},
            .numel = numel_,
            .contiguous = true,
            .allocation = data_};
  }

 private:
  static constexpr std::size_t kAlignment = 512;
  static constexpr std::int64_t kUnit = 1;
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(numel_) * sizeof(float);
  }

  std::int64_t numel_;
  float* data_;
};

void add_to(Queue& queue, const Tensor& sum, const Tensor& other) {
  Expression expression("add");
  const Node left = expression.load(sum.access());
  expression.store(expression.apply(Op::kAdd, left, expression.load(other.access())), sum.access());
  if (!record(queue, expression)) std::abort();  // fusion is off: there is nothing to measure
}

/// Waits for each chain outside of the time if `kCallerOnly`.
template <bool kCallerOnly>
void chain(benchmark::State& state) {
  Cores cores{1};
  Queue queue{QueueId{0, 0, 0}, cores};
  const std::int64_t operators = state.range(0);
  const Tensor sum(state.range(1)), other(state.range(1));
  std::vector<std::int64_t> samples;
  for (auto _ : state) {
    const std::int64_t start = now_ns();
    for (std::int64_t i = 0; i < operators; ++i) add_to(queue, sum, other);
    if (!kCallerOnly) queue.synchronize();
    const std::int64_t elapsed = now_ns() - start;
    if (kCallerOnly) queue.synchronize();
    state.SetIterationTime(static_cast<double>(elapsed) * 1e-9 / static_cast<double>(operators));
    samples.push_back(elapsed / operators);
  }
  std::sort(samples.begin(), samples.end());
  state.counters["median_ns"] = static_cast<double>(samples[samples.size() / 2]);
}
BENCHMARK(chain<true>)
    ->Name("record/operator_of_chain")
    ->UseManualTime()
    ->Iterations(2000)
    ->ArgsProduct({{1, 30}, {1000, 10000}});
BENCHMARK(chain<false>)
    ->Name("run/operator_of_chain")
    ->UseManualTime()
    ->Iterations(2000)
    ->ArgsProduct({{1, 30}, {1000, 10000}});

}  // namespace
}  // namespace loom::fusion
