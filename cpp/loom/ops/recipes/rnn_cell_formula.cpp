// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rnn_cell_formula.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

namespace loom::ops {
namespace {

at::Tensor with_bias(const at::Tensor& gates, const at::Tensor& bias) {
  return bias.defined() ? gates + bias : gates;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_formula(const at::Tensor& input,
                                                                 const at::Tensor& hidden,
                                                                 const at::Tensor& cell,
                                                                 const at::Tensor& input_bias,
                                                                 const at::Tensor& hidden_bias) {
  const std::vector<at::Tensor> sums =
      with_bias(with_bias(input + hidden, input_bias), hidden_bias).chunk(4, 1);
  const at::Tensor in = sums[0].sigmoid(), forget = sums[1].sigmoid();
  const at::Tensor candidate = sums[2].tanh(), output = sums[3].sigmoid();
  const at::Tensor kept = forget * cell + in * candidate;
  return {output * kept.tanh(), kept, at::cat({in, forget, candidate, output}, 1)};
}

std::tuple<at::Tensor, at::Tensor> lstm_cell_gradient_formula(const at::Tensor& grad_hidden,
                                                              const at::Tensor& grad_cell,
                                                              const at::Tensor& cell,
                                                              const at::Tensor& new_cell,
                                                              const at::Tensor& workspace) {
  const std::vector<at::Tensor> gates = workspace.chunk(4, 1);
  const at::Tensor &in = gates[0], &forget = gates[1], &candidate = gates[2], &output = gates[3];
  at::Tensor through_cell = grad_cell.defined() ? grad_cell : at::zeros_like(new_cell);
  at::Tensor to_output;
  if (grad_hidden.defined()) {
    const at::Tensor squashed = new_cell.tanh();
    through_cell = through_cell + grad_hidden * output * (1 - squashed * squashed);
    to_output = grad_hidden * squashed * (1 - output) * output;
  } else {
    to_output = at::zeros_like(output);
  }
  const at::Tensor to_gates = at::cat(
      {through_cell * candidate * (1 - in) * in, through_cell * cell * (1 - forget) * forget,
       through_cell * in * (1 - candidate * candidate), to_output},
      1);
  return {to_gates, through_cell * forget};
}

std::tuple<at::Tensor, at::Tensor> gru_cell_formula(const at::Tensor& input,
                                                    const at::Tensor& hidden,
                                                    const at::Tensor& state,
                                                    const at::Tensor& input_bias,
                                                    const at::Tensor& hidden_bias) {
  const std::vector<at::Tensor> inputs = with_bias(input, input_bias).chunk(3, 1);
  const std::vector<at::Tensor> parts = with_bias(hidden, hidden_bias).chunk(3, 1);
  const at::Tensor reset = (inputs[0] + parts[0]).sigmoid();
  const at::Tensor update = (inputs[1] + parts[1]).sigmoid();
  const at::Tensor candidate = (inputs[2] + reset * parts[2]).tanh();
  return {candidate + update * (state - candidate),
          at::cat({reset, update, candidate, state, parts[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gru_cell_gradient_formula(
    const at::Tensor& grad, const at::Tensor& workspace) {
  const std::vector<at::Tensor> kept = workspace.chunk(5, 1);
  const at::Tensor &reset = kept[0], &update = kept[1], &candidate = kept[2], &state = kept[3];
  const at::Tensor to_candidate = grad * (1 - update) * (1 - candidate * candidate);
  const at::Tensor to_reset = to_candidate * kept[4] * (1 - reset) * reset;
  const at::Tensor to_update = grad * (state - candidate) * (1 - update) * update;
  return {at::cat({to_reset, to_update, to_candidate}, 1),
          at::cat({to_reset, to_update, to_candidate * reset}, 1), grad * update};
}

}  // namespace loom::ops
