// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recurrent/lstm_cell.h"

#include "loom/ops/random/isa_clones.h"
#include "loom/ops/recurrent/lanes.h"

#include <algorithm>

namespace loom::ops::recurrent {
namespace {

template <bool kWhole>
[[gnu::always_inline]] inline void step_rows(const LstmStep& s) {
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const float* sums = s.sums + row * kGroupSums;
    float* gates = s.gates + row * kGates * s.hidden;
    Lanes in, forget, candidate, out, part, cell;
    const auto gate = [&](std::int64_t index, Lanes& to) [[gnu::always_inline]] {
      load<kWhole>(gates + index * s.hidden, s.units, to);
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
      store<kWhole>(in, s.units, gates);
      store<kWhole>(forget, s.units, gates + s.hidden);
      store<kWhole>(candidate, s.units, gates + 2 * s.hidden);
      store<kWhole>(out, s.units, gates + 3 * s.hidden);
    }
    load<kWhole>(s.cell_before + row * s.hidden, s.units, cell);
    cell = forget * cell + in * candidate;
    store<kWhole>(cell, s.units, s.cell_after + row * s.hidden);
    tanh(cell);
    out *= cell;
    store<kWhole>(out, s.units, s.state + row * s.hidden);
    store<kWhole>(out, s.units, s.output + row * s.output_stride);
  }
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

LOOM_ISA_CLONES void lstm_step(const LstmStep& s) {
  if (s.units == kGroup) {
    step_rows<true>(s);
  } else {
    step_rows<false>(s);
  }
}

LOOM_ISA_CLONES void lstm_step_gradient(const LstmStepGradient& s) {
  const std::int64_t whole = s.units / kGroup * kGroup;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t unit = 0; unit < whole; unit += kGroup) gradient<true>(s, row, unit, kGroup);
    if (whole < s.units) gradient<false>(s, row, whole, s.units - whole);
  }
}

}  // namespace loom::ops::recurrent
