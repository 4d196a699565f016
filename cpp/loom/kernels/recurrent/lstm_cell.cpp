// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/recurrent/lstm_cell.h"

#include "loom/kernels/recurrent/lanes.h"

namespace loom::kernels::recurrent::LOOM_SIMD {
namespace {

static_assert(kGroup % kLanes == 0);

/// `count` units from `unit` on, of one row.
template <bool kWhole>
[[gnu::always_inline]] inline void step_units(const LstmStep& s, std::int64_t row,
                                              std::int64_t unit, std::int64_t count) {
  const float* sums = s.sums + row * kGroupSums + unit;
  float* gates = s.gates + row * kGates * s.hidden + unit;
  const std::int64_t at = row * s.hidden + unit;
  Lanes in, forget, candidate, out, part, cell;
  const auto gate = [&](std::int64_t index, Lanes& to) [[gnu::always_inline]] {
    load<kWhole>(gates + index * s.hidden, count, to);
    std::memcpy(&part, sums + index * kGroup, sizeof part);
    to += part;
  };
  gate(0, in);
  gate(1, forget);
  gate(2, candidate);
  gate(3, out);
  sigmoid(in);
  sigmoid(forget);
  tanh(candidate);
  sigmoid(out);
  if (s.keeps) {
    store<kWhole>(in, count, gates);
    store<kWhole>(forget, count, gates + s.hidden);
    store<kWhole>(candidate, count, gates + 2 * s.hidden);
    store<kWhole>(out, count, gates + 3 * s.hidden);
  }
  load<kWhole>(s.cell_before + at, count, cell);
  cell = forget * cell + in * candidate;
  store<kWhole>(cell, count, s.cell_after + at);
  tanh(cell);
  out *= cell;
  store<kWhole>(out, count, s.state + at);
  store<kWhole>(out, count, s.output + row * s.output_stride + unit);
}

template <bool kWhole>
[[gnu::always_inline]] inline void gradient(const LstmStepGradient& s, std::int64_t row,
                                            std::int64_t unit, std::int64_t count) {
  const float* gates = s.gates + row * kGates * s.hidden + unit;
  float* gates_grad = s.gates_grad + row * kGates * s.hidden + unit;
  float* cell_grad = s.cell_grad + row * s.hidden + unit;
  Lanes in, forget, candidate, out, squashed, before, grad = {}, through;
  if (s.sums != nullptr) load<kWhole>(s.sums + row * s.sums_stride + unit, count, grad);
  if (s.output_grad != nullptr) {
    load<kWhole>(s.output_grad + row * s.output_grad_stride + unit, count, through);
    grad += through;
  }
  load<kWhole>(gates, count, in);
  load<kWhole>(gates + s.hidden, count, forget);
  load<kWhole>(gates + 2 * s.hidden, count, candidate);
  load<kWhole>(gates + 3 * s.hidden, count, out);
  load<kWhole>(s.cell_before + row * s.hidden + unit, count, before);
  load<kWhole>(s.cell_after + row * s.hidden + unit, count, squashed);
  load<kWhole>(cell_grad, count, through);
  tanh(squashed);
  through += grad * out * (1.0F - squashed * squashed);
  store<kWhole>(through * candidate * in * (1.0F - in), count, gates_grad);
  store<kWhole>(through * before * forget * (1.0F - forget), count, gates_grad + s.hidden);
  store<kWhole>(through * in * (1.0F - candidate * candidate), count, gates_grad + 2 * s.hidden);
  store<kWhole>(grad * squashed * out * (1.0F - out), count, gates_grad + 3 * s.hidden);
  store<kWhole>(through * forget, count, cell_grad);
}

}  // namespace

void lstm_step(const LstmStep& s) noexcept {
  const std::int64_t whole = s.units / kLanes * kLanes;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t unit = 0; unit < whole; unit += kLanes)
      step_units<true>(s, row, unit, kLanes);
    if (whole < s.units) step_units<false>(s, row, whole, s.units - whole);
  }
}

void lstm_step_gradient(const LstmStepGradient& s) noexcept {
  const std::int64_t whole = s.units / kLanes * kLanes;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t unit = 0; unit < whole; unit += kLanes) gradient<true>(s, row, unit, kLanes);
    if (whole < s.units) gradient<false>(s, row, whole, s.units - whole);
  }
}

}  // namespace loom::kernels::recurrent::LOOM_SIMD
