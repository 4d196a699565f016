// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/lstm_formula.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

// Only operators that batched gradients (torch.autograd.grad(..., is_grads_batched=True)) know meet
// gradients: no composites.
namespace loom::ops {
namespace {

/// One step: activated gates, and the states before and after.
struct Step {
  at::Tensor in, forget, candidate, out, hidden_before, cell_before, cell;
};

std::vector<Step> run(const LstmLayer& layer) {
  at::Tensor hidden = layer.hidden, cell = layer.cell;
  std::vector<Step> steps;
  std::vector<at::Tensor> inputs =
      at::linear(layer.input, layer.input_weight, layer.input_bias).unbind(0);
  if (layer.reverse) std::reverse(inputs.begin(), inputs.end());
  for (const at::Tensor& input : inputs) {
    const std::vector<at::Tensor> gates =
        (input + at::linear(hidden, layer.hidden_weight, layer.hidden_bias)).chunk(4, 1);
    Step step{
        gates[0].sigmoid(), gates[1].sigmoid(), gates[2].tanh(), gates[3].sigmoid(), hidden, cell,
        at::Tensor()};
    cell = step.cell = step.forget * cell + step.in * step.candidate;
    hidden = step.out * cell.tanh();
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

std::array<at::Tensor, 6> lstm_layer_gradient_formula(const LstmLayer& layer,
                                                      const at::Tensor& output_grad,
                                                      const at::Tensor& hidden_grad,
                                                      const at::Tensor& cell_grad) {
  const std::vector<Step> steps = run(layer);
  const auto count = static_cast<std::int64_t>(steps.size());
  at::Tensor to_hidden = hidden_grad.defined() ? hidden_grad : at::zeros_like(layer.hidden);
  at::Tensor to_cell = cell_grad.defined() ? cell_grad : at::zeros_like(layer.cell);
  at::Tensor hidden_weight;
  std::vector<at::Tensor> all_gates(steps.size());
  for (std::int64_t i = count - 1; i >= 0; --i) {
    const Step& s = steps[static_cast<std::size_t>(i)];
    const std::int64_t place = layer.reverse ? count - 1 - i : i;
    if (output_grad.defined()) to_hidden = to_hidden + output_grad.select(0, place);
    const at::Tensor squashed = s.cell.tanh();
    to_cell = to_cell + to_hidden * s.out * (1 - squashed * squashed);
    const at::Tensor gates = at::cat({to_cell * s.candidate * s.in * (1 - s.in),
                                      to_cell * s.cell_before * s.forget * (1 - s.forget),
                                      to_cell * s.in * (1 - s.candidate * s.candidate),
                                      to_hidden * squashed * s.out * (1 - s.out)},
                                     1);
    to_hidden = gates.mm(layer.hidden_weight);
    to_cell = to_cell * s.forget;
    const at::Tensor weight = gates.t().mm(s.hidden_before);
    hidden_weight = hidden_weight.defined() ? hidden_weight + weight : weight;
    all_gates[static_cast<std::size_t>(place)] = gates;
  }
  const at::Tensor rows = at::cat(all_gates, 0);
  const at::Tensor inputs = layer.input.reshape({-1, layer.input.size(2)});
  return {rows.mm(layer.input_weight).view(layer.input.sizes()),
          to_hidden,
          to_cell,
          rows.t().mm(inputs),
          hidden_weight,
          rows.sum(0)};
}

}  // namespace loom::ops
