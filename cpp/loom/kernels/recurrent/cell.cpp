// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/recurrent/cell.h"

#include "loom/kernels/recurrent/lanes.h"

namespace loom::kernels::recurrent::LOOM_SIMD {
namespace {

/// `count` units from `unit` on, of one row.
struct Part {
  std::int64_t row, unit, count;
};

template <bool kWhole>
[[gnu::always_inline]] inline void load_part(const RowSpan<const float>& from, const Part& part,
                                             Lanes& to) {
  load<kWhole>(from[part.row] + part.unit, part.count, to);
}
template <bool kWhole>
[[gnu::always_inline]] inline void store_part(const Lanes& from, const Part& part,
                                              const RowSpan<float>& to) {
  store<kWhole>(from, part.count, to[part.row] + part.unit);
}

/// The weighted input of a gate, and the weighted state, with their biases.
template <bool kWhole>
[[gnu::always_inline]] inline void load_gate(const CellStep& s, const Part& part, std::int64_t gate,
                                             Lanes& input, Lanes& hidden) {
  const std::int64_t at = gate * s.gate_stride + part.unit;
  load<kWhole>(s.input[part.row] + at, part.count, input);
  load<kWhole>(s.sums[part.row] + gate * s.sums_gate_stride + part.unit, part.count, hidden);
  if (s.input_bias != nullptr) {
    Lanes bias;
    load<kWhole>(s.input_bias + at, part.count, bias);
    input += bias;
    load<kWhole>(s.hidden_bias + at, part.count, bias);
    hidden += bias;
  }
}

template <bool kWhole>
[[gnu::always_inline]] inline void load_sum(const CellStep& s, const Part& part, std::int64_t gate,
                                            Lanes& to) {
  Lanes hidden;
  load_gate<kWhole>(s, part, gate, to, hidden);
  to += hidden;
}

template <bool kWhole>
[[gnu::always_inline]] inline void store_gate(const CellStep& s, const Part& part,
                                              std::int64_t gate, const Lanes& from) {
  if (!s.gates) return;
  store<kWhole>(from, part.count, s.gates[part.row] + gate * s.gate_stride + part.unit);
}

template <Cell kCell, bool kWhole>
[[gnu::always_inline]] inline void step_part(const CellStep& s, const Part& part) {
  if constexpr (kCell == Cell::kLstm) {
    Lanes in, forget, candidate, out, cell;
    load_sum<kWhole>(s, part, 0, in);
    load_sum<kWhole>(s, part, 1, forget);
    load_sum<kWhole>(s, part, 2, candidate);
    load_sum<kWhole>(s, part, 3, out);
    sigmoid(in);
    sigmoid(forget);
    tanh(candidate);
    sigmoid(out);
    store_gate<kWhole>(s, part, 0, in);
    store_gate<kWhole>(s, part, 1, forget);
    store_gate<kWhole>(s, part, 2, candidate);
    store_gate<kWhole>(s, part, 3, out);
    load_part<kWhole>(s.before, part, cell);
    cell = forget * cell + in * candidate;
    store_part<kWhole>(cell, part, s.kept);
    tanh(cell);
    store_part<kWhole>(out * cell, part, s.state);
  } else if constexpr (kCell == Cell::kGru) {
    Lanes reset, update, candidate, hidden, state;
    load_sum<kWhole>(s, part, 0, reset);
    load_sum<kWhole>(s, part, 1, update);
    load_gate<kWhole>(s, part, 2, candidate, hidden);
    sigmoid(reset);
    sigmoid(update);
    candidate += reset * hidden;
    tanh(candidate);
    store_gate<kWhole>(s, part, 0, reset);
    store_gate<kWhole>(s, part, 1, update);
    store_gate<kWhole>(s, part, 2, candidate);
    if (s.kept) store_part<kWhole>(hidden, part, s.kept);
    load_part<kWhole>(s.before, part, state);
    store_part<kWhole>(candidate + update * (state - candidate), part, s.state);
  } else {
    Lanes state;
    load_sum<kWhole>(s, part, 0, state);
    if constexpr (kCell == Cell::kTanh) {
      tanh(state);
    } else {
      state = state < 0.0F ? Lanes{} : state;  // NaN stays
    }
    store_part<kWhole>(state, part, s.state);
  }
}

template <bool kWhole>
[[gnu::always_inline]] inline void lstm_gradient(const CellGradient& s, const Part& part,
                                                 const Lanes& grad) {
  const float* gates = s.gates[part.row] + part.unit;
  float* to = s.input_grad[part.row] + part.unit;
  Lanes in, forget, candidate, out, squashed, before, through;
  load<kWhole>(gates, part.count, in);
  load<kWhole>(gates + s.gate_stride, part.count, forget);
  load<kWhole>(gates + 2 * s.gate_stride, part.count, candidate);
  load<kWhole>(gates + 3 * s.gate_stride, part.count, out);
  load_part<kWhole>(s.before, part, before);
  load_part<kWhole>(s.kept, part, squashed);
  load<kWhole>(s.carried[part.row] + part.unit, part.count, through);
  tanh(squashed);
  through += grad * out * (1.0F - squashed * squashed);
  store<kWhole>(through * candidate * in * (1.0F - in), part.count, to);
  store<kWhole>(through * before * forget * (1.0F - forget), part.count, to + s.gate_stride);
  store<kWhole>(through * in * (1.0F - candidate * candidate), part.count, to + 2 * s.gate_stride);
  store<kWhole>(grad * squashed * out * (1.0F - out), part.count, to + 3 * s.gate_stride);
  store_part<kWhole>(through * forget, part, s.carried);
}

template <bool kWhole>
[[gnu::always_inline]] inline void gru_gradient(const CellGradient& s, const Part& part,
                                                const Lanes& from_output) {
  const float* gates = s.gates[part.row] + part.unit;
  Lanes reset, update, candidate, hidden, before, grad;
  load<kWhole>(gates, part.count, reset);
  load<kWhole>(gates + s.gate_stride, part.count, update);
  load<kWhole>(gates + 2 * s.gate_stride, part.count, candidate);
  load_part<kWhole>(s.before, part, before);
  load_part<kWhole>(s.kept, part, hidden);
  load<kWhole>(s.carried[part.row] + part.unit, part.count, grad);
  grad += from_output;
  const Lanes to_candidate = grad * (1.0F - update) * (1.0F - candidate * candidate);
  const Lanes to_update = grad * (before - candidate) * update * (1.0F - update);
  const Lanes to_reset = to_candidate * hidden * reset * (1.0F - reset);
  const auto store_gates = [&](const Lanes& newest, float* to) [[gnu::always_inline]] {
    store<kWhole>(to_reset, part.count, to);
    store<kWhole>(to_update, part.count, to + s.gate_stride);
    store<kWhole>(newest, part.count, to + 2 * s.gate_stride);
  };
  store_gates(to_candidate, s.input_grad[part.row] + part.unit);
  store_gates(to_candidate * reset, s.hidden_grad[part.row] + part.unit);
  store_part<kWhole>(grad * update, part, s.carried);
}

template <Cell kCell, bool kWhole>
[[gnu::always_inline]] inline void gradient_part(const CellGradient& s, const Part& part) {
  Lanes grad = {}, more;
  if (s.from_after) load_part<kWhole>(s.from_after, part, grad);
  if (s.output_grad) {
    load_part<kWhole>(s.output_grad, part, more);
    grad += more;
  }
  if constexpr (kCell == Cell::kLstm) {
    lstm_gradient<kWhole>(s, part, grad);
  } else if constexpr (kCell == Cell::kGru) {
    gru_gradient<kWhole>(s, part, grad);
  } else {
    Lanes state;
    load_part<kWhole>(s.gates, part, state);
    if constexpr (kCell == Cell::kTanh) {
      grad *= 1.0F - state * state;
    } else {
      grad = state <= 0.0F ? Lanes{} : grad;
    }
    store_part<kWhole>(grad, part, s.input_grad);
  }
}

template <Cell kCell>
void step_rows(const CellStep& s) {
  const std::int64_t whole = s.units / kLanes * kLanes;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t unit = 0; unit < whole; unit += kLanes)
      step_part<kCell, true>(s, {row, unit, kLanes});
    if (whole < s.units) step_part<kCell, false>(s, {row, whole, s.units - whole});
  }
}

template <Cell kCell>
void gradient_rows(const CellGradient& s) {
  const std::int64_t whole = s.units / kLanes * kLanes;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t unit = 0; unit < whole; unit += kLanes)
      gradient_part<kCell, true>(s, {row, unit, kLanes});
    if (whole < s.units) gradient_part<kCell, false>(s, {row, whole, s.units - whole});
  }
}

}  // namespace

void cell_step(const CellStep& s) noexcept {
  switch (s.cell) {
    case Cell::kLstm:
      return step_rows<Cell::kLstm>(s);
    case Cell::kGru:
      return step_rows<Cell::kGru>(s);
    case Cell::kTanh:
      return step_rows<Cell::kTanh>(s);
    case Cell::kRelu:
      return step_rows<Cell::kRelu>(s);
  }
}

void cell_gradient(const CellGradient& s) noexcept {
  switch (s.cell) {
    case Cell::kLstm:
      return gradient_rows<Cell::kLstm>(s);
    case Cell::kGru:
      return gradient_rows<Cell::kGru>(s);
    case Cell::kTanh:
      return gradient_rows<Cell::kTanh>(s);
    case Cell::kRelu:
      return gradient_rows<Cell::kRelu>(s);
  }
}

}  // namespace loom::kernels::recurrent::LOOM_SIMD
