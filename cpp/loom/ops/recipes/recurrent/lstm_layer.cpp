// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/lstm_layer.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/recurrent/lstm_cell.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/recurrent/blocks.h"

#include <ATen/native/CPUBlas.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>

namespace loom::ops {
namespace {

using namespace kernels::recurrent;
using recurrent::Recurrence;
using recurrent::run_recurrence;

// Rows whose sums stay in L1.
constexpr std::int64_t kRowTile = 32;

struct Sizes {
  std::int64_t steps, batch, hidden;
  bool reverse;

  // Unpacked weights cost as much for each row as packed ones for eight, and packing as much as
  // some ten steps of one row.
  [[nodiscard]] bool packs() const noexcept { return steps >= 32 || (batch - 1) * steps >= 8; }

  [[nodiscard]] std::int64_t step(std::int64_t index) const noexcept {
    return reverse ? steps - 1 - index : index;
  }
  [[nodiscard]] std::int64_t state() const noexcept { return batch * hidden; }
  [[nodiscard]] std::int64_t parts(std::int64_t width) const noexcept {
    return ceil_div(hidden, width);
  }
  [[nodiscard]] Recurrence recurrence(std::int64_t groups) const noexcept {
    const std::int64_t weights = kGates * hidden * hidden;
    return {steps, batch, groups, static_cast<double>(weights) * static_cast<double>(batch),
            weights * static_cast<std::int64_t>(sizeof(float))};
  }
};

float* floats(const TensorRef& tensor) { return reinterpret_cast<float*>(tensor.data()); }

// Panels of all gates of kGroup units each, one row per hidden element.
void pack_for_forward(Grid& grid, const Sizes& s, const float* weight, float* to) {
  grid.run_by_any(s.parts(kGroup), [&](std::int64_t group) {
    float* panel = to + group * kGroupSums * s.hidden;
    const std::int64_t units = std::min(kGroup, s.hidden - group * kGroup);
    if (units < kGroup) std::fill_n(panel, kGroupSums * s.hidden, 0.F);
    for (std::int64_t gate = 0; gate < kGates; ++gate) {
      transpose(units, s.hidden, weight + (gate * s.hidden + group * kGroup) * s.hidden, s.hidden,
                panel + gate * kGroup, kGroupSums);
    }
  });
}

// Panels of kPanel columns each.
void pack_for_backward(Grid& grid, const Sizes& s, const float* weight, float* to) {
  const std::int64_t rows = kGates * s.hidden;
  grid.run_by_any(s.parts(kPanel), [&](std::int64_t index) {
    float* panel = to + index * kPanel * rows;
    const std::int64_t units = std::min(kPanel, s.hidden - index * kPanel);
    if (units < kPanel) std::fill_n(panel, kPanel * rows, 0.F);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(weight + row * s.hidden + index * kPanel, units, panel + row * kPanel);
    }
  });
}

// sums = state x weights of a group of units; rows of kGroupSums.
void weigh_state(const Sizes& s, const float* state, std::int64_t rows, std::int64_t group,
                 const float* weight, const float* packed, float* sums) {
  if (packed != nullptr) {
    at::native::cpublas::brgemm(rows, kGroupSums, s.hidden, s.hidden, kGroupSums, kGroupSums, false,
                                state, packed + group * kGroupSums * s.hidden, sums, false);
    return;
  }
  const std::int64_t units = std::min(kGroup, s.hidden - group * kGroup);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t gate = 0; gate < kGates; ++gate) {
      const float* own = weight + (gate * s.hidden + group * kGroup) * s.hidden;
      multiply_vector(state + row * s.hidden,
                      MatrixView<const float>{own, units, s.hidden, s.hidden, 1},
                      sums + row * kGroupSums + gate * kGroup);
    }
  }
}

void forward_kernel(Grid& grid, const TensorRef& output, const TensorRef& last_hidden,
                    const TensorRef& last_cell, const TensorRef& gates, const TensorRef& cells,
                    const TensorRef& states, const TensorRef& packed_ref, const TensorRef& hidden,
                    const TensorRef& cell, const TensorRef& weight_ref, Sizes s, bool keeps) {
  const float* weight = floats(weight_ref);
  float* packed = packed_ref.defined() ? floats(packed_ref) : nullptr;
  if (packed != nullptr) pack_for_forward(grid, s, weight, packed);
  // Two states that take turns: a step reads all of one and writes the other.
  const auto state_after = [&](std::int64_t index) {
    return floats(states) + (index & 1) * s.state();
  };
  const auto cell_after = [&](std::int64_t index) {
    return floats(cells) + (keeps ? s.step(index) * s.state() : 0);
  };
  run_recurrence(grid, s.recurrence(s.parts(kGroup)),
                 [&](std::int64_t index, std::int64_t row, std::int64_t end_row,
                     std::int64_t first_group, std::int64_t end_group) {
                   alignas(64) float sums[kRowTile * kGroupSums] = {};
                   const float* state = index == 0 ? floats(hidden) : state_after(index - 1);
                   const float* cell_before = index == 0 ? floats(cell) : cell_after(index - 1);
                   for (; row < end_row; row += kRowTile) {
                     const std::int64_t rows = std::min(kRowTile, end_row - row);
                     for (std::int64_t group = first_group; group < end_group; ++group) {
                       weigh_state(s, state + row * s.hidden, rows, group, weight, packed, sums);
                       const std::int64_t unit = group * kGroup;
                       const std::int64_t at = row * s.hidden + unit;
                       const std::int64_t at_step = s.step(index) * s.state() + row * s.hidden;
                       lstm_step({.rows = rows,
                                  .units = std::min(kGroup, s.hidden - unit),
                                  .hidden = s.hidden,
                                  .sums = sums,
                                  .gates = floats(gates) + kGates * at_step + unit,
                                  .cell_before = cell_before + at,
                                  .cell_after = cell_after(index) + at,
                                  .state = state_after(index) + at,
                                  .output = floats(output) + at_step + unit,
                                  .output_stride = s.hidden,
                                  .keeps = keeps});
                     }
                   }
                 });
  std::copy_n(state_after(s.steps - 1), s.state(), floats(last_hidden));
  std::copy_n(cell_after(s.steps - 1), s.state(), floats(last_cell));
}

void backward_kernel(Grid& grid, const TensorRef& gates_grad, const TensorRef& cell_grad,
                     const TensorRef& packed, const TensorRef& output_grad,
                     const TensorRef& hidden_grad, const TensorRef& gates, const TensorRef& cells,
                     const TensorRef& cell, const TensorRef& weight, Sizes s) {
  pack_for_backward(grid, s, floats(weight), floats(packed));
  const std::int64_t width = kGates * s.hidden;
  run_recurrence(
      grid, s.recurrence(s.parts(kPanel)),
      [&](std::int64_t index, std::int64_t row, std::int64_t end_row, std::int64_t first_panel,
          std::int64_t end_panel) {
        alignas(64) float sums[kRowTile * kPanel];
        const std::int64_t forward = s.steps - 1 - index;
        const std::int64_t at_step = s.step(forward) * s.state();
        const float* before =
            forward == 0 ? floats(cell) : floats(cells) + s.step(forward - 1) * s.state();
        for (; row < end_row; row += kRowTile) {
          const std::int64_t rows = std::min(kRowTile, end_row - row);
          for (std::int64_t panel = first_panel; panel < end_panel; ++panel) {
            const std::int64_t unit = panel * kPanel;
            const std::int64_t at = row * s.hidden + unit;
            const float* from_after = sums;
            if (index > 0) {
              const float* after = floats(gates_grad) + s.step(forward + 1) * kGates * s.state();
              at::native::cpublas::brgemm(rows, kPanel, width, width, kPanel, kPanel, false,
                                          after + row * width, floats(packed) + unit * width, sums,
                                          false);
            } else {
              from_after = hidden_grad.defined() ? floats(hidden_grad) + at : nullptr;
            }
            lstm_step_gradient(
                {.rows = rows,
                 .units = std::min(kPanel, s.hidden - unit),
                 .hidden = s.hidden,
                 .sums = from_after,
                 .sums_stride = index > 0 ? kPanel : s.hidden,
                 .output_grad =
                     output_grad.defined() ? floats(output_grad) + at_step + at : nullptr,
                 .output_grad_stride = s.hidden,
                 .gates = floats(gates) + kGates * (at_step + row * s.hidden) + unit,
                 .cell_before = before + at,
                 .cell_after = floats(cells) + at_step + at,
                 .cell_grad = floats(cell_grad) + at,
                 .gates_grad = floats(gates_grad) + kGates * (at_step + row * s.hidden) + unit});
          }
        }
      });
}

Sizes sizes_of(const LstmLayer& layer) {
  return {layer.input.size(0), layer.input.size(1), layer.hidden.size(1), layer.reverse};
}

at::Tensor as_rows(const at::Tensor& steps) { return steps.flatten(0, 1); }

}  // namespace

// Its input is multiplied as a matrix, which has a setting of its own.
bool can_run_lstm_layer() {
  return can_multiply<float>(ProductsOf::kRecurrentLayer) && can_multiply<float>();
}

LstmResult lstm_layer(const LstmLayer& layer, bool keeps) {
  const Sizes s = sizes_of(layer);
  const auto make = [&](c10::IntArrayRef sizes) {
    return empty(sizes, layer.input.scalar_type(), layer.input.device());
  };
  const at::Tensor input = as_rows(layer.input);
  const at::Tensor to_gates = layer.input_weight.t();
  LstmResult result;
  result.gates = layer.input_bias.defined()
                     ? at::addmm(at::add(layer.input_bias, layer.hidden_bias), input, to_gates)
                     : at::mm(input, to_gates);
  result.output = make({s.steps, s.batch, s.hidden});
  result.hidden = make({s.batch, s.hidden});
  result.cell = make({s.batch, s.hidden});
  result.cells = make({keeps ? s.steps : 1, s.batch, s.hidden});
  const at::Tensor states = make({2, s.batch, s.hidden});
  at::Tensor packed;
  if (s.packs()) packed = make({s.parts(kGroup), s.hidden, kGroupSums});
  launch_on(layer.input.device(), "lstm", Custom{}, forward_kernel, out(result.output),
            out(result.hidden), out(result.cell), out(result.gates), out(result.cells), out(states),
            out(packed), layer.hidden, layer.cell, layer.hidden_weight, s, keeps);
  return result;
}

LstmGradient lstm_layer_backward(const LstmLayer& layer, const LstmResult& kept,
                                 const at::Tensor& output_grad, const at::Tensor& hidden_grad,
                                 const at::Tensor& cell_grad, LstmWanted wanted) {
  const Sizes s = sizes_of(layer);
  const auto make = [&](c10::IntArrayRef sizes) {
    return empty(sizes, layer.input.scalar_type(), layer.input.device());
  };
  const auto dense = [](const at::Tensor& grad) {
    return grad.defined() ? grad.resolve_neg().contiguous() : grad;
  };
  LstmGradient result;
  result.cell = cell_grad.defined() ? cell_grad.clone(at::MemoryFormat::Contiguous)
                                    : at::zeros_like(layer.cell);
  const at::Tensor gates = make({s.steps, s.batch, kGates * s.hidden});
  const at::Tensor packed = make({s.parts(kPanel), kGates * s.hidden, kPanel});
  launch_on(layer.input.device(), "lstm_backward", Custom{}, backward_kernel, out(gates),
            out(result.cell), out(packed), dense(output_grad), dense(hidden_grad), kept.gates,
            kept.cells, layer.cell, layer.hidden_weight, s);
  const at::Tensor rows = as_rows(gates);
  if (wanted.input) {
    result.input = at::mm(rows, layer.input_weight).view(layer.input.sizes());
  }
  if (wanted.hidden) result.hidden = at::mm(gates.select(0, s.step(0)), layer.hidden_weight);
  if (wanted.input_weight) result.input_weight = at::mm(rows.t(), as_rows(layer.input));
  if (wanted.hidden_weight) {
    // Every step but the first had the output of the one before it as its state.
    const at::Tensor later = kept.output.narrow(0, s.reverse ? 1 : 0, s.steps - 1);
    const at::Tensor initial = layer.hidden.unsqueeze(0);
    const at::Tensor states = s.reverse ? at::cat({later, initial}) : at::cat({initial, later});
    result.hidden_weight = at::mm(rows.t(), as_rows(states));
  }
  if (wanted.bias) result.bias = rows.sum(0);
  return result;
}

}  // namespace loom::ops
