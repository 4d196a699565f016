// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/lstm_bfloat16.h"

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/recurrent/gate_sums.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/recipes/product/block_kernel.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/recurrent/layer_kernels.h"

#include <ATen/ops/mm.h>
#include <c10/util/BFloat16.h>

#include <utility>

namespace loom::ops::recurrent {
namespace {

using c10::BFloat16;
using kernels::recurrent::add_biases;
using kernels::recurrent::cell_step;

constexpr std::int64_t kUnits = kernels::recurrent::group_units(Cell::kLstm);
constexpr std::int64_t kGates = kernels::recurrent::gate_count(Cell::kLstm);
static_assert(kUnits * kGates == kPanel);

/// `packed`: for each group of units a panel of the weights of its gates; `bias`: the sum of both,
/// in the same order. `last_cell` is the only cell that is kept.
struct Operands {
  TensorRef output, last_hidden, last_cell, packed, bias;
  TensorRef gates, hidden, cell, weight, input_bias, hidden_bias;
  Shape shape;

  void accesses(AccessList& list) const {
    for (const TensorRef* written : {&output, &last_hidden, &last_cell, &packed, &bias}) {
      written->append_access(list, AccessKind::kReplace);
    }
    for (const TensorRef* read : {&gates, &hidden, &cell, &weight, &input_bias, &hidden_bias}) {
      read->append_access(list, AccessKind::kRead);
    }
  }
};

struct OperandsOfBoth {
  Operands forward, reverse;

  void accesses(AccessList& list) const {
    forward.accesses(list);
    reverse.accesses(list);
  }
};

Recurrence recurrence_of(const Shape& s) {
  Recurrence r = s.recurrence(kUnits);
  r.step_cost /= 2;  // in multiply-adds of float32
  r.weight_bytes /= 2;
  return r;
}

std::int64_t panel_elements(const Shape& s) { return padded_inner<BFloat16>(s.hidden) * kPanel; }

void pack(Grid& grid, const Operands& o) {
  const Shape& s = o.shape;
  const auto* weight = elements<const BFloat16>(o.weight);
  const auto* input_bias = elements<const simd::BFloat16>(o.input_bias);
  const auto* hidden_bias = elements<const simd::BFloat16>(o.hidden_bias);
  grid.run_by_any(s.groups(kUnits), [&](std::int64_t group) {
    BFloat16* const panel = elements<BFloat16>(o.packed) + group * panel_elements(s);
    float* const bias = floats(o.bias) + group * kPanel;
    const std::int64_t unit = group * kUnits, units = std::min(kUnits, s.hidden - unit);
    if (units < kUnits) std::fill_n(panel, panel_elements(s), BFloat16(0));
    for (std::int64_t gate = 0; gate < kGates; ++gate) {
      const std::int64_t first = gate * s.hidden + unit;
      // Pairs of inner elements: the gate's columns begin at as many pairs.
      pack_panel<BFloat16>({weight + first * s.hidden, s.hidden, units, 1, s.hidden},
                           panel + 2 * gate * kUnits);
    }
    std::fill_n(bias, kPanel, 0.F);
    if (input_bias == nullptr) return;
    add_biases<simd::BFloat16>({.rows = 1,
                                .gates = kGates,
                                .units = units,
                                .from = {input_bias + unit},
                                .from_stride = s.hidden,
                                .bias = hidden_bias + unit,
                                .bias_stride = s.hidden,
                                .to = {bias},
                                .to_stride = kUnits});
  });
}

/// A step of some rows and groups of units.
struct Step {
  const Operands& o;
  const Shape& s;

  [[nodiscard]] bool starts(std::int64_t index, std::int64_t row) const {
    return row >= s.walk.rows(index - 1);
  }
  [[nodiscard]] const BFloat16* state_before(std::int64_t index, std::int64_t row) const {
    if (starts(index, row)) return elements<const BFloat16>(o.hidden) + row * s.hidden;
    return elements<const BFloat16>(o.output) + (s.walk.first_row(index - 1) + row) * s.hidden;
  }

  void run_tile(std::int64_t index, std::int64_t row, std::int64_t rows, std::int64_t group) const {
    alignas(64) float sums[kRowTile * kPanel], inputs[kRowTile * kPanel], state[kRowTile * kUnits];
    const std::int64_t unit = group * kUnits, units = std::min(kUnits, s.hidden - unit);
    const std::int64_t here = s.walk.first_row(index) + row;
    multiply_block({rows, kPanel, s.hidden, s.hidden, kPanel, kPanel, false},
                   state_before(index, row),
                   elements<const BFloat16>(o.packed) + group * panel_elements(s), sums);
    add_biases<float>(
        {.rows = rows,
         .gates = kGates,
         .units = units,
         .from = {elements<const simd::BFloat16>(o.gates) + here * s.width() + unit, s.width()},
         .from_stride = s.hidden,
         .bias = floats(o.bias) + group * kPanel,
         .bias_stride = kUnits,
         .to = {inputs, kPanel},
         .to_stride = kUnits});
    const std::int64_t at = row * s.hidden + unit;
    cell_step({.cell = Cell::kLstm,
               .rows = rows,
               .units = units,
               .gate_stride = kUnits,
               .sums = {sums, kPanel},
               .sums_gate_stride = kUnits,
               .input = {inputs, kPanel},
               .before = rows_of(starts(index, row) ? o.cell : o.last_cell, at, s.hidden),
               .kept = rows_of(o.last_cell, at, s.hidden),
               .state = {state, kUnits}});
    BFloat16* to = elements<BFloat16>(o.output) + here * s.hidden + unit;
    for (std::int64_t i = 0; i < rows; ++i, to += s.hidden) {
      kernels::round_row<simd::BFloat16>(stored(to), state + i * kUnits, units);
    }
  }
  void operator()(std::int64_t index, std::int64_t row, std::int64_t end, std::int64_t first_group,
                  std::int64_t end_group) const {
    const MatrixUnitScope<BFloat16> scope;
    const std::int64_t rows_here = std::min(end, s.walk.rows(index));
    for_tiles(row, rows_here, {s.walk.rows(index - 1)}, [&](std::int64_t from, std::int64_t rows) {
      for (std::int64_t group = first_group; group < end_group; ++group) {
        run_tile(index, from, rows, group);
      }
    });
  }
};

void run(Grid& grid, const Operands& o) {
  pack(grid, o);
  run_recurrence(grid, recurrence_of(o.shape), Step{o, o.shape});
  copy_last(o.shape, elements<const BFloat16>(o.output), elements<BFloat16>(o.last_hidden));
}

// A grid inside of a block is its core's.
void run_directions(Grid& grid, const OperandsOfBoth& operands) {
  grid.run_by_any(
      2, [&](std::int64_t index) { run(grid, index == 0 ? operands.forward : operands.reverse); });
}

/// Of a command that is yet to be launched: until then nobody else may be given the memory.
struct Prepared {
  Operands operands;
  at::Tensor packed, bias;
};

/// Queues the product of the input, and makes the results.
Prepared prepare(const Layer& layer, LayerResult& result) {
  const Shape s{layer.kind, layer.walk, layer.hidden_size()};
  const auto make = [&](c10::IntArrayRef sizes, c10::ScalarType dtype) {
    return empty(sizes, dtype, layer.input.device());
  };
  const at::Tensor input = layer.input.dim() == 3 ? layer.input.flatten(0, 1) : layer.input;
  result.gates = at::mm(input, layer.input_weight.t());
  at::DimVector sizes(layer.input.sizes());
  sizes.back() = s.hidden;
  result.output = make(sizes, at::kBFloat16);
  result.hidden = make({s.batch(), s.hidden}, at::kBFloat16);
  result.cell = make({s.batch(), s.hidden}, at::kFloat);
  const at::Tensor packed = make({s.groups(kUnits), panel_elements(s)}, at::kBFloat16);
  const at::Tensor bias = make({s.groups(kUnits), kPanel}, at::kFloat);
  const auto written = [](const at::Tensor& tensor) { return TensorRef(tensor, /*writes=*/true); };
  return {.operands = {.output = written(result.output),
                       .last_hidden = written(result.hidden),
                       .last_cell = written(result.cell),
                       .packed = written(packed),
                       .bias = written(bias),
                       .gates = TensorRef(result.gates),
                       .hidden = TensorRef(layer.hidden),
                       .cell = TensorRef(layer.cell),
                       .weight = TensorRef(layer.hidden_weight),
                       .input_bias = TensorRef(layer.input_bias),
                       .hidden_bias = TensorRef(layer.hidden_bias),
                       .shape = s},
          .packed = packed,
          .bias = bias};
}

}  // namespace

bool can_run_bfloat16_layer() { return can_multiply<BFloat16>(); }

LayerResult run_bfloat16_layer(const Layer& layer) {
  LayerResult result;
  Prepared made = prepare(layer, result);
  launch_on(layer.input.device(), "lstm", Custom{}, run, std::move(made.operands));
  return result;
}

std::array<LayerResult, 2> run_both_bfloat16(const std::array<Layer, 2>& layers) {
  std::array<LayerResult, 2> results;
  const Shape s{layers[0].kind, layers[0].walk, layers[0].hidden_size()};
  if (cut_recurrence(recurrence_of(s)).blocks > 2) {
    for (std::size_t i = 0; i < 2; ++i) results[i] = run_bfloat16_layer(layers[i]);
    return results;
  }
  Prepared forward = prepare(layers[0], results[0]), reverse = prepare(layers[1], results[1]);
  launch_on(layers[0].input.device(), "lstm", Custom{}, run_directions,
            OperandsOfBoth{std::move(forward.operands), std::move(reverse.operands)});
  return results;
}

}  // namespace loom::ops::recurrent
