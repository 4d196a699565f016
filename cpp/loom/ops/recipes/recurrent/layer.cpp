// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/layer.h"

#include "loom/ops/launch/empty.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/recurrent/layer_kernels.h"
#include "loom/ops/recipes/recurrent/lstm_bfloat16.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include <utility>
#include <vector>

namespace loom::ops::recurrent {
namespace {

Shape shape_of(const Layer& layer) { return {layer.kind, layer.walk, layer.hidden_size()}; }

const char* name_of(Cell kind, bool backward) {
  switch (kind) {
    case Cell::kLstm:
      return backward ? "lstm_backward" : "lstm";
    case Cell::kGru:
      return backward ? "gru_backward" : "gru";
    case Cell::kTanh:
      return backward ? "rnn_tanh_backward" : "rnn_tanh";
    case Cell::kRelu:
      return backward ? "rnn_relu_backward" : "rnn_relu";
  }
  return "";
}

/// Of each sample the row of its first step.
at::Tensor first_rows(const at::Tensor& rows, const Walk& walk) {
  std::vector<at::Tensor> parts;
  for (std::int64_t index = 0, known = 0; index < walk.count() && known < walk.steps.batch();
       ++index) {
    const std::int64_t count = walk.rows(index) - known;
    if (count == 0) continue;
    parts.push_back(rows.narrow(0, walk.first_row(index) + known, count));
    known += count;
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::Tensor as_rows(const at::Tensor& steps) {
  return steps.dim() == 3 ? steps.flatten(0, 1) : steps;
}

/// Of a command that is yet to be launched: until then nobody else may be given the memory.
struct Prepared {
  ForwardOperands operands;
  at::Tensor packed;
};

/// Queues the product of the input, and makes the results.
Prepared prepare(const Layer& layer, bool keeps, LayerResult& result) {
  const Shape s = shape_of(layer);
  const auto make = [&](c10::IntArrayRef sizes) {
    return empty(sizes, layer.input.scalar_type(), layer.input.device());
  };
  const at::Tensor input = as_rows(layer.input);
  const std::int64_t rows = input.size(0);
  const bool lstm = s.kind == Cell::kLstm;
  result.gates = at::mm(input, layer.input_weight.t());
  at::DimVector sizes(layer.input.sizes());
  sizes.back() = s.hidden;
  result.output = make(sizes);
  result.hidden = make({s.batch(), s.hidden});
  if (lstm) result.cell = make({s.batch(), s.hidden});
  if (keeps && s.gates() > 1) result.kept = make({rows, s.hidden});
  at::Tensor packed;
  if (s.packs()) {
    packed = make({s.groups(kernels::recurrent::group_units(s.kind)), s.hidden,
                   kernels::recurrent::group_sums(s.kind)});
  }
  const auto written = [](const at::Tensor& tensor) { return TensorRef(tensor, /*writes=*/true); };
  return {.operands = {.output = written(result.output),
                       .last_hidden = written(result.hidden),
                       .last_cell = written(result.cell),
                       .gates = written(result.gates),
                       .kept = written(result.kept),
                       .packed = written(packed),
                       .hidden = TensorRef(layer.hidden),
                       .cell = TensorRef(layer.cell),
                       .weight = TensorRef(layer.hidden_weight),
                       .input_bias = TensorRef(layer.input_bias),
                       .hidden_bias = TensorRef(layer.hidden_bias),
                       .shape = s,
                       .keeps = keeps},
          .packed = packed};
}

}  // namespace

// Its input is multiplied as a matrix, which has a setting of its own.
bool can_run_layer() {
  return can_multiply<float>(ProductsOf::kRecurrentLayer) && can_multiply<float>();
}

LayerResult run_layer(const Layer& layer, bool keeps) {
  if (layer.input.scalar_type() == at::kBFloat16) return run_bfloat16_layer(layer);
  LayerResult result;
  Prepared made = prepare(layer, keeps, result);
  launch_on(layer.input.device(), name_of(layer.kind, /*backward=*/false), Custom{}, forward_kernel,
            std::move(made.operands));
  return result;
}

std::array<LayerResult, 2> run_both(const std::array<Layer, 2>& layers) {
  if (layers[0].input.scalar_type() == at::kBFloat16) return run_both_bfloat16(layers);
  std::array<LayerResult, 2> results;
  if (!suits_both(shape_of(layers[0]))) {
    for (std::size_t i = 0; i < 2; ++i) results[i] = run_layer(layers[i], /*keeps=*/false);
    return results;
  }
  Prepared forward = prepare(layers[0], /*keeps=*/false, results[0]);
  Prepared reverse = prepare(layers[1], /*keeps=*/false, results[1]);
  launch_on(layers[0].input.device(), name_of(layers[0].kind, /*backward=*/false), Custom{},
            forward_kernel_of_both,
            BothOperands{std::move(forward.operands), std::move(reverse.operands)});
  return results;
}

LayerGradient run_layer_backward(const Layer& layer, const LayerResult& kept,
                                 const at::Tensor& output_grad, const at::Tensor& hidden_grad,
                                 const at::Tensor& cell_grad, LayerWanted wanted) {
  const Shape s = shape_of(layer);
  const at::Tensor input = as_rows(layer.input);
  const auto make = [&](c10::IntArrayRef sizes) {
    return empty(sizes, layer.input.scalar_type(), layer.input.device());
  };
  const auto dense = [](const at::Tensor& grad) {
    return grad.defined() ? grad.resolve_neg().contiguous() : grad;
  };
  const std::int64_t rows = input.size(0);
  const bool lstm = s.kind == Cell::kLstm, gru = s.kind == Cell::kGru;
  at::Tensor carried;
  if (lstm && cell_grad.defined()) {
    carried = cell_grad.clone(at::MemoryFormat::Contiguous);
  } else if (lstm || gru) {
    carried = at::zeros_like(layer.hidden);
  }
  const at::Tensor to_inputs = make({rows, s.width()});
  const at::Tensor to_hiddens = gru ? make({rows, s.width()}) : at::Tensor();
  at::Tensor states;
  if (wanted.hidden_weight) states = make({rows, s.hidden});
  const at::Tensor packed = make({s.groups(kPanel), s.width(), kPanel});
  launch_on(layer.input.device(), name_of(s.kind, /*backward=*/true), Custom{}, backward_kernel,
            out(to_inputs), out(to_hiddens), inout(carried), out(states), out(packed),
            dense(output_grad), dense(hidden_grad), kept.gates, kept.kept, kept.output,
            layer.hidden, layer.cell, layer.hidden_weight, s);
  const at::Tensor& through = gru ? to_hiddens : to_inputs;
  LayerGradient result;
  if (wanted.input) {
    result.input = at::mm(to_inputs, layer.input_weight).view(layer.input.sizes());
  }
  if (wanted.hidden) {
    const at::Tensor first = first_rows(through, layer.walk);
    result.hidden =
        gru ? at::addmm(carried, first, layer.hidden_weight) : at::mm(first, layer.hidden_weight);
  }
  if (lstm) result.cell = carried;
  if (wanted.input_weight) result.input_weight = at::mm(to_inputs.t(), input);
  if (wanted.hidden_weight) result.hidden_weight = at::mm(through.t(), states);
  if (wanted.input_bias || (wanted.hidden_bias && !gru)) {
    result.input_bias = result.hidden_bias = to_inputs.sum(0);
  }
  if (wanted.hidden_bias && gru) result.hidden_bias = to_hiddens.sum(0);
  return result;
}

}  // namespace loom::ops::recurrent
