// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/recurrent/row_product.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/recurrent/layer_kernels.h"

#include <ATen/native/CPUBlas.h>

namespace loom::ops::recurrent {
namespace {

using namespace kernels::recurrent;

// Panels of all gates of a group of units each, one row per hidden element.
void pack_for_forward(Grid& grid, const Shape& s, const float* weight, float* to) {
  const std::int64_t width = group_units(s.kind), sums = group_sums(s.kind);
  grid.run_by_any(s.groups(width), [&](std::int64_t group) {
    float* panel = to + group * sums * s.hidden;
    const std::int64_t units = std::min(width, s.hidden - group * width);
    if (units < width) std::fill_n(panel, sums * s.hidden, 0.F);
    for (std::int64_t gate = 0; gate < s.gates(); ++gate) {
      transpose(units, s.hidden, weight + (gate * s.hidden + group * width) * s.hidden, s.hidden,
                panel + gate * width, sums);
    }
  });
}

// sums = state x weights of a group of units, in rows of group_sums().
void weigh_state(const Shape& s, const float* state, std::int64_t rows, std::int64_t group,
                 const float* weight, const float* packed, float* to) {
  const std::int64_t width = group_units(s.kind), sums = group_sums(s.kind);
  if (packed != nullptr && rows == 1) {
    multiply_row(state, s.hidden, packed + group * sums * s.hidden, sums, to);
    return;
  }
  if (packed != nullptr) {
    at::native::cpublas::brgemm(rows, sums, s.hidden, s.hidden, sums, sums, false, state,
                                packed + group * sums * s.hidden, to, false);
    return;
  }
  const std::int64_t units = std::min(width, s.hidden - group * width);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t gate = 0; gate < s.gates(); ++gate) {
      const float* own = weight + (gate * s.hidden + group * width) * s.hidden;
      multiply_vector(state + row * s.hidden,
                      MatrixView<const float>{own, units, s.hidden, s.hidden, 1},
                      to + row * sums + gate * width);
    }
  }
}

/// A step of some rows and groups of units.
struct ForwardStep {
  const Shape& s;
  const TensorRef &output, &last_cell, &gates, &kept, &packed, &hidden, &cell, &weight;
  const float *input_bias, *hidden_bias;
  bool keeps;

  [[nodiscard]] bool lstm() const { return s.kind == Cell::kLstm; }
  /// An LSTM whose cells nobody will look at has one state of each, in its last place.
  [[nodiscard]] RowSpan<float> kept_at(std::int64_t index, std::int64_t row,
                                       std::int64_t unit) const {
    if (lstm() && !keeps) return rows_of(last_cell, row * s.hidden + unit, s.hidden);
    return rows_of(kept, (s.walk.first_row(index) + row) * s.hidden + unit, s.hidden);
  }
  [[nodiscard]] bool starts(std::int64_t index, std::int64_t row) const {
    return row >= s.walk.rows(index - 1);
  }
  [[nodiscard]] RowSpan<float> state_before(std::int64_t index, std::int64_t row,
                                            std::int64_t unit) const {
    if (starts(index, row)) return rows_of(hidden, row * s.hidden + unit, s.hidden);
    return rows_of(output, (s.walk.first_row(index - 1) + row) * s.hidden + unit, s.hidden);
  }
  [[nodiscard]] RowSpan<float> before(std::int64_t index, std::int64_t row,
                                      std::int64_t unit) const {
    if (!lstm()) return state_before(index, row, unit);
    if (starts(index, row)) return rows_of(cell, row * s.hidden + unit, s.hidden);
    return kept_at(index - 1, row, unit);
  }

  void run_tile(std::int64_t index, std::int64_t row, std::int64_t rows, std::int64_t group,
                float* sums) const {
    const std::int64_t width = group_units(s.kind), unit = group * width;
    weigh_state(s, state_before(index, row, 0).data, rows, group, floats(weight), floats(packed),
                sums);
    const std::int64_t here = s.walk.first_row(index) + row;
    const RowSpan<float> inputs = rows_of(gates, here * s.width() + unit, s.width());
    cell_step({.cell = s.kind,
               .rows = rows,
               .units = std::min(width, s.hidden - unit),
               .gate_stride = s.hidden,
               .sums = {sums, group_sums(s.kind)},
               .sums_gate_stride = width,
               .input_bias = input_bias != nullptr ? input_bias + unit : nullptr,
               .hidden_bias = hidden_bias != nullptr ? hidden_bias + unit : nullptr,
               .input = inputs,
               .gates = keeps && s.gates() > 1 ? inputs : RowSpan<float>{},
               .before = before(index, row, unit),
               .kept = kept_at(index, row, unit),
               .state = rows_of(output, here * s.hidden + unit, s.hidden)});
  }
  void operator()(std::int64_t index, std::int64_t row, std::int64_t end, std::int64_t first_group,
                  std::int64_t end_group) const {
    alignas(64) float sums[kRowTile * kMaxGroupSums];
    const std::int64_t rows_here = std::min(end, s.walk.rows(index));
    for_tiles(row, rows_here, {s.walk.rows(index - 1)}, [&](std::int64_t from, std::int64_t rows) {
      for (std::int64_t group = first_group; group < end_group; ++group) {
        run_tile(index, from, rows, group, sums);
      }
    });
  }
};

}  // namespace

void forward_kernel(Grid& grid, const ForwardOperands& o) {
  const Shape& s = o.shape;
  if (o.packed.defined()) pack_for_forward(grid, s, floats(o.weight), floats(o.packed));
  const ForwardStep step{s,
                         o.output,
                         o.last_cell,
                         o.gates,
                         o.kept,
                         o.packed,
                         o.hidden,
                         o.cell,
                         o.weight,
                         floats(o.input_bias),
                         floats(o.hidden_bias),
                         o.keeps};
  run_recurrence(grid, s.recurrence(group_units(s.kind)), step);
  copy_last(s, floats(o.output), floats(o.last_hidden));
  if (step.lstm() && o.keeps) copy_last(s, floats(o.kept), floats(o.last_cell));
}

// A grid inside of a block is its core's.
void forward_kernel_of_both(Grid& grid, const BothOperands& operands) {
  grid.run_by_any(2, [&](std::int64_t index) {
    forward_kernel(grid, index == 0 ? operands.forward : operands.reverse);
  });
}

bool suits_both(const Shape& shape) {
  return cut_recurrence(shape.recurrence(group_units(shape.kind))).blocks <= 2;
}

}  // namespace loom::ops::recurrent
