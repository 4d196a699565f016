// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/formula.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

// Only operators that batched gradients (torch.autograd.grad(..., is_grads_batched=True)) know meet
// gradients: no composites.
namespace loom::ops::recurrent {
namespace {

/// One step: activated gates, the new gate's part of a GRU's state, and states before and after.
struct Step {
  std::vector<at::Tensor> gates;
  at::Tensor part, before, cell_before, state, cell;
};

/// The first rows of `going_on`, and those of `initial` beyond its own, `count` in all.
at::Tensor rows_for(const at::Tensor& going_on, const at::Tensor& initial, std::int64_t count) {
  const std::int64_t known = going_on.size(0);
  if (known == count) return going_on;
  if (known > count) return going_on.narrow(0, 0, count);
  return at::cat({going_on, initial.narrow(0, known, count - known)}, 0);
}

void take_step(const Layer& layer, const at::Tensor& input, const at::Tensor& weighted, Step& s) {
  if (layer.kind == Cell::kLstm) {
    const std::vector<at::Tensor> sums = (input + weighted).chunk(4, 1);
    s.gates = {sums[0].sigmoid(), sums[1].sigmoid(), sums[2].tanh(), sums[3].sigmoid()};
    s.cell = s.gates[1] * s.cell_before + s.gates[0] * s.gates[2];
    s.state = s.gates[3] * s.cell.tanh();
  } else if (layer.kind == Cell::kGru) {
    const std::vector<at::Tensor> inputs = input.chunk(3, 1), parts = weighted.chunk(3, 1);
    s.part = parts[2];
    const at::Tensor reset = (inputs[0] + parts[0]).sigmoid();
    s.gates = {reset, (inputs[1] + parts[1]).sigmoid(), (inputs[2] + reset * s.part).tanh()};
    s.state = s.gates[2] + s.gates[1] * (s.before - s.gates[2]);
  } else {
    const at::Tensor sum = input + weighted;
    s.state = layer.kind == Cell::kTanh ? sum.tanh() : sum.relu();
  }
}

std::vector<Step> run(const Layer& layer, const at::Tensor& rows) {
  const at::Tensor inputs = at::linear(rows, layer.input_weight, layer.input_bias);
  at::Tensor hidden = layer.hidden, cell = layer.cell;
  std::vector<Step> steps;
  for (std::int64_t index = 0; index < layer.walk.count(); ++index) {
    const std::int64_t count = layer.walk.rows(index);
    Step s;
    s.before = rows_for(hidden, layer.hidden, count);
    if (cell.defined()) s.cell_before = rows_for(cell, layer.cell, count);
    take_step(layer, inputs.narrow(0, layer.walk.first_row(index), count),
              at::linear(s.before, layer.hidden_weight, layer.hidden_bias), s);
    hidden = s.state;
    cell = s.cell;
    steps.push_back(std::move(s));
  }
  return steps;
}

/// Gradients of the sums of a step's inputs, and of its weighted states.
struct GatesGradient {
  at::Tensor input, hidden;
};

/// `to_state` becomes the part of the gradient of the state before that does not go through gates;
/// `to_cell` becomes that of the cell before.
GatesGradient step_gradient(Cell kind, const Step& s, at::Tensor& to_state, at::Tensor& to_cell) {
  if (kind == Cell::kLstm) {
    const at::Tensor &in = s.gates[0], &forget = s.gates[1], &candidate = s.gates[2],
                     &out = s.gates[3];
    const at::Tensor squashed = s.cell.tanh();
    to_cell = to_cell + to_state * out * (1 - squashed * squashed);
    const at::Tensor sums = at::cat(
        {to_cell * candidate * in * (1 - in), to_cell * s.cell_before * forget * (1 - forget),
         to_cell * in * (1 - candidate * candidate), to_state * squashed * out * (1 - out)},
        1);
    to_cell = to_cell * forget;
    to_state = at::Tensor();
    return {sums, sums};
  }
  if (kind == Cell::kGru) {
    const at::Tensor &reset = s.gates[0], &update = s.gates[1], &candidate = s.gates[2];
    const at::Tensor to_candidate = to_state * (1 - update) * (1 - candidate * candidate);
    const at::Tensor to_update = to_state * (s.before - candidate) * update * (1 - update);
    const at::Tensor to_reset = to_candidate * s.part * reset * (1 - reset);
    to_state = to_state * update;
    return {at::cat({to_reset, to_update, to_candidate}, 1),
            at::cat({to_reset, to_update, to_candidate * reset}, 1)};
  }
  const at::Tensor sum = kind == Cell::kTanh ? to_state * (1 - s.state * s.state)
                                             : at::threshold_backward(to_state, s.state, 0);
  to_state = at::Tensor();
  return {sum, sum};
}

/// What the first steps of samples leave, in the order of the samples.
class Initial {
 public:
  /// Keeps the rows of `going_on` beyond `count` and cuts them off.
  void take(at::Tensor& going_on, std::int64_t count) {
    const std::int64_t known = going_on.size(0);
    if (known <= count) return;
    parts_.insert(parts_.begin(), going_on.narrow(0, count, known - count));
    if (count > 0) going_on = going_on.narrow(0, 0, count);
  }
  [[nodiscard]] at::Tensor all() const {
    return parts_.size() == 1 ? parts_[0] : at::cat(parts_, 0);
  }

 private:
  std::vector<at::Tensor> parts_;
};

}  // namespace

LayerGradient layer_gradient_formula(const Layer& layer, const at::Tensor& output_grad,
                                     const at::Tensor& hidden_grad, const at::Tensor& cell_grad) {
  const bool lstm = layer.kind == Cell::kLstm;
  const at::Tensor inputs = layer.input.reshape({-1, layer.input.size(-1)});
  const at::Tensor outputs =
      output_grad.defined() ? output_grad.reshape({-1, layer.hidden_size()}) : output_grad;
  const std::vector<Step> steps = run(layer, inputs);
  const at::Tensor last_hidden = hidden_grad.defined() ? hidden_grad : at::zeros_like(layer.hidden);
  const at::Tensor last_cell =
      !lstm || cell_grad.defined() ? cell_grad : at::zeros_like(layer.cell);
  const Walk& walk = layer.walk;
  at::Tensor to_hidden = last_hidden.narrow(0, 0, walk.rows(walk.count() - 1)),
             to_cell = lstm ? last_cell.narrow(0, 0, walk.rows(walk.count() - 1)) : last_cell;
  Initial initial_hidden, initial_cell;
  at::Tensor hidden_weight;
  std::vector<at::Tensor> to_inputs(steps.size()), to_hiddens(steps.size());
  for (std::int64_t index = walk.count() - 1; index >= 0; --index) {
    const Step& s = steps[static_cast<std::size_t>(index)];
    const std::int64_t count = walk.rows(index);
    to_hidden = rows_for(to_hidden, last_hidden, count);
    if (lstm) to_cell = rows_for(to_cell, last_cell, count);
    if (outputs.defined()) {
      to_hidden = to_hidden + outputs.narrow(0, walk.first_row(index), count);
    }
    const GatesGradient gates = step_gradient(layer.kind, s, to_hidden, to_cell);
    const at::Tensor through = gates.hidden.mm(layer.hidden_weight);
    to_hidden = to_hidden.defined() ? to_hidden + through : through;
    initial_hidden.take(to_hidden, walk.rows(index - 1));
    if (lstm) initial_cell.take(to_cell, walk.rows(index - 1));
    const at::Tensor weight = gates.hidden.t().mm(s.before);
    hidden_weight = hidden_weight.defined() ? hidden_weight + weight : weight;
    const auto place = static_cast<std::size_t>(walk.reverse ? walk.count() - 1 - index : index);
    to_inputs[place] = gates.input;
    to_hiddens[place] = gates.hidden;
  }
  const at::Tensor rows = at::cat(to_inputs, 0);
  LayerGradient result;
  result.input = rows.mm(layer.input_weight).view(layer.input.sizes());
  result.hidden = initial_hidden.all();
  if (lstm) result.cell = initial_cell.all();
  result.input_weight = rows.t().mm(inputs);
  result.hidden_weight = hidden_weight;
  if (layer.input_bias.defined()) {
    result.input_bias = rows.sum(0);
    result.hidden_bias =
        layer.kind == Cell::kGru ? at::cat(to_hiddens, 0).sum(0) : result.input_bias;
  }
  return result;
}

}  // namespace loom::ops::recurrent
