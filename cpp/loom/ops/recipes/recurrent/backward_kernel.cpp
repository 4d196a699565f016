// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/recurrent/layer_kernels.h"

#include <ATen/native/CPUBlas.h>

namespace loom::ops::recurrent {
namespace {

using namespace kernels::recurrent;

// Panels of kPanel columns each.
void pack_for_backward(Grid& grid, const Shape& s, const float* weight, float* to) {
  grid.run_by_any(s.groups(kPanel), [&](std::int64_t index) {
    float* panel = to + index * kPanel * s.width();
    const std::int64_t units = std::min(kPanel, s.hidden - index * kPanel);
    if (units < kPanel) std::fill_n(panel, kPanel * s.width(), 0.F);
    for (std::int64_t row = 0; row < s.width(); ++row) {
      std::copy_n(weight + row * s.hidden + index * kPanel, units, panel + row * kPanel);
    }
  });
}

/// The state before each row, for the gradient of its weights.
void copy_states(Grid& grid, const TensorRef& to, const TensorRef& output, const TensorRef& hidden,
                 const Shape& s) {
  constexpr std::int64_t kBlockElements = 1 << 14;
  const std::int64_t part =
      std::clamp<std::int64_t>(kBlockElements / (s.batch() * s.hidden), 1, s.walk.count());
  grid.run_by_any(ceil_div(s.walk.count(), part), [&](std::int64_t block) {
    const std::int64_t end = std::min((block + 1) * part, s.walk.count());
    for (std::int64_t index = block * part; index < end; ++index) {
      const std::int64_t rows = s.walk.rows(index);
      const std::int64_t later = std::min(s.walk.rows(index - 1), rows);
      float* place = floats(to) + s.walk.first_row(index) * s.hidden;
      if (later > 0) {
        std::copy_n(floats(output) + s.walk.first_row(index - 1) * s.hidden, later * s.hidden,
                    place);
      }
      std::copy_n(floats(hidden) + later * s.hidden, (rows - later) * s.hidden,
                  place + later * s.hidden);
    }
  });
}

/// A step of some rows and panels of units, `turned` steps from the last one.
struct BackwardStep {
  const Shape& s;
  const TensorRef &input_grad, &gates_grad, &carried, &packed, &output_grad, &hidden_grad;
  const TensorRef &gates, &kept, &output, &hidden, &cell;

  [[nodiscard]] RowSpan<float> states_at(const TensorRef& tensor, std::int64_t row,
                                         std::int64_t unit) const {
    return rows_of(tensor, row * s.hidden + unit, s.hidden);
  }
  /// What the cell read at that row, which is a step's.
  [[nodiscard]] RowSpan<float> before(std::int64_t index, std::int64_t row,
                                      std::int64_t unit) const {
    const bool lstm = s.kind == Cell::kLstm;
    if (row >= s.walk.rows(index - 1)) return states_at(lstm ? cell : hidden, row, unit);
    return states_at(lstm ? kept : output, s.walk.first_row(index - 1) + row, unit);
  }
  /// The state's gradient that does not come from its output.
  [[nodiscard]] RowSpan<float> from_after(std::int64_t index, std::int64_t row, std::int64_t rows,
                                          std::int64_t unit, float* sums) const {
    if (row >= s.walk.rows(index + 1)) return states_at(hidden_grad, row, unit);
    const TensorRef& through = gates_grad.defined() ? gates_grad : input_grad;
    const std::int64_t next = s.walk.first_row(index + 1) + row;
    at::native::cpublas::brgemm(rows, kPanel, s.width(), s.width(), kPanel, kPanel, false,
                                floats(through) + next * s.width(),
                                floats(packed) + unit * s.width(), sums, false);
    return {sums, kPanel};
  }

  void run_tile(std::int64_t index, std::int64_t row, std::int64_t rows, std::int64_t unit,
                float* sums) const {
    const std::int64_t here = s.walk.first_row(index) + row;
    const auto gates_at = [&](const TensorRef& tensor) {
      return rows_of(tensor, here * s.width() + unit, s.width());
    };
    cell_gradient({.cell = s.kind,
                   .rows = rows,
                   .units = std::min(kPanel, s.hidden - unit),
                   .gate_stride = s.hidden,
                   .from_after = from_after(index, row, rows, unit, sums),
                   .output_grad = states_at(output_grad, here, unit),
                   .gates = s.gates() > 1 ? gates_at(gates) : states_at(output, here, unit),
                   .before = before(index, row, unit),
                   .kept = states_at(kept, here, unit),
                   .carried = states_at(carried, row, unit),
                   .input_grad = gates_at(input_grad),
                   .hidden_grad = gates_at(gates_grad)});
  }
  void operator()(std::int64_t turned, std::int64_t row, std::int64_t end, std::int64_t first_panel,
                  std::int64_t end_panel) const {
    alignas(64) float sums[kRowTile * kPanel];
    const std::int64_t index = s.walk.count() - 1 - turned;
    for_tiles(row, std::min(end, s.walk.rows(index)),
              {s.walk.rows(index - 1), s.walk.rows(index + 1)},
              [&](std::int64_t from, std::int64_t rows) {
                for (std::int64_t panel = first_panel; panel < end_panel; ++panel) {
                  run_tile(index, from, rows, panel * kPanel, sums);
                }
              });
  }
};

}  // namespace

void backward_kernel(Grid& grid, const TensorRef& input_grad, const TensorRef& gates_grad,
                     const TensorRef& carried, const TensorRef& states, const TensorRef& packed,
                     const TensorRef& output_grad, const TensorRef& hidden_grad,
                     const TensorRef& gates, const TensorRef& kept, const TensorRef& output,
                     const TensorRef& hidden, const TensorRef& cell, const TensorRef& weight,
                     const Shape& s) {
  if (states.defined()) copy_states(grid, states, output, hidden, s);
  pack_for_backward(grid, s, floats(weight), floats(packed));
  const BackwardStep step{s,           input_grad, gates_grad, carried, packed, output_grad,
                          hidden_grad, gates,      kept,       output,  hidden, cell};
  run_recurrence(grid, s.recurrence(kPanel), step);
}

}  // namespace loom::ops::recurrent
