// SPDX-License-Identifier: BSD-3-Clause
// Fused programs by the interpreter on one thread: nanoseconds for an element, and the bytes of
// inputs and outputs a second. The argument is the number of elements.
#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace loom::fusion;

/// Adds instructions on floats to a body and numbers them.
class Builder {
 public:
  explicit Builder(std::size_t inputs, DType dtype = DType::kFloat) {
    body.inputs.assign(inputs, {dtype, false});
  }
  /// All numbers come before all instructions.
  ValueId number(float value) {
    body.params.push_back(Type::kFloat);
    params.push_back({.float32 = value});
    return static_cast<ValueId>(body.value_count() - 1);
  }
  ValueId add(Op op, ValueId a, ValueId b = 0, ValueId c = 0) {
    body.instructions.push_back({op, Type::kFloat, a, b, c});
    return static_cast<ValueId>(body.value_count() - 1);
  }
  Builder& store(ValueId value, DType dtype = DType::kFloat) {
    body.outputs.push_back({value, dtype, false});
    return *this;
  }

  Body body;
  std::vector<Param> params;
};

Builder relu_of_mul_add() {
  Builder b(3);
  const ValueId zero = b.number(0);
  return b.store(b.add(Op::kMaximum, b.add(Op::kAdd, b.add(Op::kMul, 0, 1), 2), zero));
}

Builder gelu() {
  Builder b(1);
  const ValueId cubic = b.number(0.044715F), scale = b.number(0.7978845608F);
  const ValueId half = b.number(0.5F), one = b.number(1);
  const ValueId cube = b.add(Op::kMul, b.add(Op::kMul, 0, 0), 0);
  const ValueId inner = b.add(Op::kMul, b.add(Op::kAdd, b.add(Op::kMul, cube, cubic), 0), scale);
  const ValueId right = b.add(Op::kAdd, b.add(Op::kTanh, inner), one);
  return b.store(b.add(Op::kMul, b.add(Op::kMul, 0, half), right));
}

Builder black_scholes() {  // spot, strike, time: call and put
  Builder b(3);
  const ValueId rate = b.number(0.02F), volatility = b.number(0.3F), drift = b.number(0.065F);
  const ValueId half = b.number(0.5F), one = b.number(1), root = b.number(0.70710678F);
  const ValueId width = b.add(Op::kMul, b.add(Op::kSqrt, 2), volatility);
  const ValueId ratio = b.add(Op::kLog, b.add(Op::kDiv, 0, 1));
  const ValueId d1 = b.add(Op::kDiv, b.add(Op::kAdd, ratio, b.add(Op::kMul, 2, drift)), width);
  const ValueId d2 = b.add(Op::kSub, d1, width);
  const auto normal = [&](ValueId d) {
    return b.add(Op::kMul, b.add(Op::kAdd, b.add(Op::kErf, b.add(Op::kMul, d, root)), one), half);
  };
  const ValueId discount = b.add(Op::kExp, b.add(Op::kNeg, b.add(Op::kMul, 2, rate)));
  const ValueId strike = b.add(Op::kMul, 1, discount);
  const ValueId call =
      b.add(Op::kSub, b.add(Op::kMul, 0, normal(d1)), b.add(Op::kMul, strike, normal(d2)));
  const ValueId put = b.add(Op::kAdd, b.add(Op::kSub, call, 0), strike);
  return b.store(call).store(put);
}

Builder softmax() {
  Builder b(1);
  const ValueId e = b.add(Op::kExp, b.add(Op::kSub, 0, b.add(Op::kMax, 0)));
  return b.store(b.add(Op::kDiv, e, b.add(Op::kSum, e)));
}

Builder bfloat16_relu_of_mul_add() {
  Builder b(3, DType::kBFloat16);
  const ValueId zero = b.number(0);
  const ValueId product = b.add(Op::kRoundBFloat16, b.add(Op::kMul, 0, 1));
  const ValueId sum = b.add(Op::kRoundBFloat16, b.add(Op::kAdd, product, 2));
  return b.store(b.add(Op::kMaximum, sum, zero), DType::kBFloat16);
}

struct alignas(64) Line {
  std::array<std::byte, 64> bytes{};
};
std::vector<Line> lines(std::size_t bytes) { return std::vector<Line>((bytes + 63) / 64); }
std::byte* begin_of(std::vector<Line>& memory) {
  return reinterpret_cast<std::byte*>(memory.data());
}

void run(benchmark::State& state, const Builder& program, std::int64_t columns) {
  const std::int64_t elements = state.range(0), rows = elements / columns;
  std::vector<std::vector<Line>> memory;
  std::vector<Place> inputs, outputs;
  std::int64_t bytes = 0;
  const auto place = [&](DType dtype, bool fill) {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    memory.push_back(lines(static_cast<std::size_t>(elements * size)));
    std::byte* const data = begin_of(memory.back());
    for (std::int64_t i = 0; fill && i < elements; ++i) {  // ordinary numbers of either type
      const auto pattern = static_cast<std::uint32_t>(0x3F000000 + (i * 2654435761U >> 9));
      const auto narrow = static_cast<std::uint16_t>(pattern >> 16);
      if (size == 2) {
        reinterpret_cast<std::uint16_t*>(data)[i] = narrow;
      } else {
        reinterpret_cast<std::uint32_t*>(data)[i] = pattern & 0x3FFFFFFF;
      }
    }
    bytes += elements * size;
    return Place{data, columns * size};
  };
  for (const Input& input : program.body.inputs) inputs.push_back(place(input.dtype, true));
  for (const Output& output : program.body.outputs) outputs.push_back(place(output.dtype, false));
  const auto kernel = make_interpreter(program.body);
  std::vector<Line> scratch = lines(kernel->scratch_bytes(columns));
  const Arguments arguments{
      rows, columns, inputs.data(), outputs.data(), program.params.data(), begin_of(scratch)};
  for (auto _ : state) kernel->run(arguments);
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["ns/element"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(elements) * 1e-9,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void relu_of_mul_add(benchmark::State& state) { run(state, relu_of_mul_add(), state.range(0)); }
void bfloat16(benchmark::State& state) { run(state, bfloat16_relu_of_mul_add(), state.range(0)); }
void gelu(benchmark::State& state) { run(state, gelu(), state.range(0)); }
void black_scholes(benchmark::State& state) { run(state, black_scholes(), state.range(0)); }
void softmax_of_1024(benchmark::State& state) { run(state, softmax(), 1024); }
void softmax_of_64(benchmark::State& state) { run(state, softmax(), 64); }

BENCHMARK(relu_of_mul_add)->Arg(1 << 14)->Arg(1 << 20);
BENCHMARK(bfloat16)->Arg(1 << 14)->Arg(1 << 20);
BENCHMARK(gelu)->Arg(1 << 14)->Arg(1 << 20);
BENCHMARK(black_scholes)->Arg(1 << 14)->Arg(1 << 20);
BENCHMARK(softmax_of_1024)->Arg(1 << 14)->Arg(1 << 20);
BENCHMARK(softmax_of_64)->Arg(1 << 14)->Arg(1 << 20);

void make(benchmark::State& state) {
  const Body body = black_scholes().body;
  for (auto _ : state) benchmark::DoNotOptimize(make_interpreter(body));
}
BENCHMARK(make);

}  // namespace
