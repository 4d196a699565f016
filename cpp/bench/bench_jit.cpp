// SPDX-License-Identifier: BSD-3-Clause
// Machine code of fused programs: what it costs to make, and how fast it is on one thread. The
// argument is the number of elements; rows have 1024 where it matters.
#include "loom/fusion/kernel.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace loom::fusion {
namespace {

/// A body in the making: values are numbers, as in Body.
class Maker {
 public:
  Maker(int inputs, std::vector<float> params) : params_(std::move(params)) {
    body_.inputs.resize(static_cast<std::size_t>(inputs));
    body_.params.assign(params_.size(), Type::kFloat);
  }

  int operator()(Op op, int a, int b = 0, int c = 0) {
    body_.instructions.push_back({.op = op,
                                  .a = static_cast<ValueId>(a),
                                  .b = static_cast<ValueId>(b),
                                  .c = static_cast<ValueId>(c)});
    return static_cast<int>(body_.value_count()) - 1;
  }
  [[nodiscard]] int param(int i) const { return static_cast<int>(body_.first_param()) + i; }
  Maker& output(int value) {
    body_.outputs.push_back({.value = static_cast<ValueId>(value)});
    return *this;
  }

  [[nodiscard]] const Body& body() const { return body_; }
  [[nodiscard]] const std::vector<float>& params() const { return params_; }

 private:
  Body body_;
  std::vector<float> params_;
};

/// relu(x * a + b)
Maker relu() {
  Maker m(1, {1.5F, -0.25F, 0});
  const int scaled = m(Op::kAdd, m(Op::kMul, 0, m.param(0)), m.param(1));
  return m.output(m(Op::kMaximum, scaled, m.param(2)));
}

/// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
Maker gelu() {
  Maker m(1, {0.5F, 1.0F, 0.7978845608F, 0.044715F});
  const int cube = m(Op::kMul, m(Op::kMul, m(Op::kMul, 0, 0), 0), m.param(3));
  const int inner = m(Op::kMul, m(Op::kAdd, 0, cube), m.param(2));
  const int factor = m(Op::kAdd, m(Op::kTanh, inner), m.param(1));
  return m.output(m(Op::kMul, m(Op::kMul, 0, m.param(0)), factor));
}

/// The price of a call and of a put: spot, strike and time are inputs.
Maker black_scholes() {
  Maker m(3, {0.02F, 0.3F, 0.5F, 0.70710678F, 1.0F, 0.045F});
  const int spot = 0, strike = 1, time = 2;
  const int rate = m.param(0), sigma = m.param(1), half = m.param(2);
  const int root = m(Op::kMul, m(Op::kSqrt, time), sigma);
  const int drift = m(Op::kMul, m(Op::kAdd, rate, m.param(5)), time);
  const int d1 = m(Op::kDiv, m(Op::kAdd, m(Op::kLog, m(Op::kDiv, spot, strike)), drift), root);
  const int d2 = m(Op::kSub, d1, root);
  const auto normal = [&](int d) {
    const int erf = m(Op::kErf, m(Op::kMul, d, m.param(3)));
    return m(Op::kMul, m(Op::kAdd, erf, m.param(4)), half);
  };
  const int discount = m(Op::kExp, m(Op::kNeg, m(Op::kMul, rate, time)));
  const int present = m(Op::kMul, strike, discount);
  const int call = m(Op::kSub, m(Op::kMul, spot, normal(d1)), m(Op::kMul, present, normal(d2)));
  const int put = m(Op::kAdd, m(Op::kSub, call, spot), present);
  return m.output(call).output(put);
}

/// One step of Adam: parameter, gradient, mean and square are read, all but the gradient written.
Maker adam() {
  Maker m(4, {0.9F, 0.1F, 0.999F, 0.001F, 1e-8F, 1e-3F, 0.5F});
  const int mean = m(Op::kAdd, m(Op::kMul, 2, m.param(0)), m(Op::kMul, 1, m.param(1)));
  const int square =
      m(Op::kAdd, m(Op::kMul, 3, m.param(2)), m(Op::kMul, m(Op::kMul, 1, 1), m.param(3)));
  const int denominator = m(Op::kAdd, m(Op::kMul, m(Op::kSqrt, square), m.param(6)), m.param(4));
  const int step = m(Op::kMul, m(Op::kDiv, mean, denominator), m.param(5));
  return m.output(m(Op::kSub, 0, step)).output(mean).output(square);
}

Maker softmax() {
  Maker m(1, {});
  const int shifted = m(Op::kExp, m(Op::kSub, 0, m(Op::kMax, 0)));
  return m.output(m(Op::kDiv, shifted, m(Op::kSum, shifted)));
}

Maker layer_norm() {
  Maker m(1, {1.0F / 1024, 1e-5F});
  const int centred = m(Op::kSub, 0, m(Op::kMul, m(Op::kSum, 0), m.param(0)));
  const int variance = m(Op::kMul, m(Op::kSum, m(Op::kMul, centred, centred)), m.param(0));
  return m.output(m(Op::kMul, centred, m(Op::kRsqrt, m(Op::kAdd, variance, m.param(1)))));
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Memory allocate(std::size_t bytes) {
  const std::size_t whole = (bytes + 63) / 64 * 64 + 64;
  return Memory(static_cast<std::byte*>(std::aligned_alloc(64, whole)));
}

void run(benchmark::State& state, const Maker& maker, bool in_place) {
  constexpr std::int64_t kColumns = 1024;
  const std::int64_t elements = state.range(0);
  const std::int64_t rows = elements / kColumns;
  // What is in one piece is one row, but for reductions, which need rows of their own.
  const bool rowwise = analyse(maker.body()).phases > 1;
  const auto kernel = compile(maker.body());
  if (kernel == nullptr) return state.SkipWithError("no machine code");
  std::vector<Memory> memory;
  std::vector<Place> inputs, outputs;
  const auto bytes = static_cast<std::size_t>(rows * kColumns) * sizeof(float);
  const auto add = [&](std::vector<Place>& to) {
    memory.push_back(allocate(bytes));
    auto* const first = reinterpret_cast<float*>(memory.back().get());
    for (std::int64_t i = 0; i < rows * kColumns; ++i) {
      first[i] = 0.5F + static_cast<float>(i % 1000) * 0.001F;
    }
    to.push_back({memory.back().get(), kColumns * 4});
  };
  for (std::size_t i = 0; i < maker.body().inputs.size(); ++i) add(inputs);
  for (std::size_t i = 0; i < maker.body().outputs.size(); ++i) {
    if (in_place) {
      outputs.push_back(inputs[i == 0 ? 0 : i + 1]);
    } else {
      add(outputs);
    }
  }
  std::vector<Param> params;
  for (const float value : maker.params()) params.push_back({.float32 = value});
  const std::int64_t columns = rowwise ? kColumns : rows * kColumns;
  const Memory scratch = allocate(kernel->scratch_bytes(columns));
  const Arguments arguments{.rows = rowwise ? rows : 1,
                            .columns = columns,
                            .inputs = inputs.data(),
                            .outputs = outputs.data(),
                            .params = params.data(),
                            .scratch = scratch.get()};
  for (auto _ : state) kernel->run(arguments);
  state.counters["ns/element"] =
      benchmark::Counter(static_cast<double>(state.iterations() * rows * kColumns) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void compile_only(benchmark::State& state, const Maker& maker) {
  if (compile(maker.body()) == nullptr) return state.SkipWithError("no machine code");
  for (auto _ : state) benchmark::DoNotOptimize(compile(maker.body()));
}

#define LOOM_BENCHMARK_BODY(name, in_place)                                                   \
  BENCHMARK_CAPTURE(run, name, name(), in_place)->Arg(16 << 10)->Arg(1 << 20)->Arg(10 << 20); \
  BENCHMARK_CAPTURE(compile_only, name, name())->Unit(benchmark::kMicrosecond)

LOOM_BENCHMARK_BODY(relu, false);
LOOM_BENCHMARK_BODY(gelu, false);
LOOM_BENCHMARK_BODY(black_scholes, false);
LOOM_BENCHMARK_BODY(adam, true);
LOOM_BENCHMARK_BODY(softmax, false);
LOOM_BENCHMARK_BODY(layer_norm, false);

}  // namespace
}  // namespace loom::fusion
