// SPDX-License-Identifier: BSD-3-Clause
// Forward mode of the fused cells. PyTorch refuses it for these operators, while the cells of cpu,
// which are composite, have it: so are they here as soon as an operand has a tangent.
#include "loom/backend/registration.h"
#include "loom/ops/recipes/rnn_cell_formula.h"

#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace loom::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using FiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Whether any has one.
bool have_tangent(const auto&... tensors) {
  return (torch::autograd::isFwGradDefined(tensors) || ...);
}

at::Tensor or_undefined(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

/// Keys that lead to PyTorch's own autograd kernel, which is registered for all backends alike.
c10::DispatchKeySet with_stock_autograd(c10::DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(c10::DispatchKey::AutogradOther);
}

ThreeTensors lstm_cell(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& hidden,
                       const at::Tensor& cell, const OptionalTensor& input_bias,
                       const OptionalTensor& hidden_bias) {
  if (have_tangent(input, hidden, cell, input_bias, hidden_bias)) {
    return lstm_cell_formula(input, hidden, cell, or_undefined(input_bias),
                             or_undefined(hidden_bias));
  }
  return at::_ops::_thnn_fused_lstm_cell::redispatch(with_stock_autograd(keys), input, hidden, cell,
                                                     input_bias, hidden_bias);
}

ThreeTensors lstm_cell_backward(c10::DispatchKeySet keys, const OptionalTensor& grad_hidden,
                                const OptionalTensor& grad_cell, const at::Tensor& cell,
                                const at::Tensor& new_cell, const at::Tensor& workspace,
                                bool has_bias) {
  if (have_tangent(grad_hidden, grad_cell, cell, new_cell, workspace)) {
    const auto [gates, carried] = lstm_cell_gradient_formula(
        or_undefined(grad_hidden), or_undefined(grad_cell), cell, new_cell, workspace);
    return {gates, carried, has_bias ? gates.sum(0) : at::Tensor()};
  }
  return at::_ops::_thnn_fused_lstm_cell_backward_impl::redispatch(
      with_stock_autograd(keys), grad_hidden, grad_cell, cell, new_cell, workspace, has_bias);
}

TwoTensors gru_cell(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& hidden,
                    const at::Tensor& state, const OptionalTensor& input_bias,
                    const OptionalTensor& hidden_bias) {
  if (have_tangent(input, hidden, state, input_bias, hidden_bias)) {
    return gru_cell_formula(input, hidden, state, or_undefined(input_bias),
                            or_undefined(hidden_bias));
  }
  return at::_ops::_thnn_fused_gru_cell::redispatch(with_stock_autograd(keys), input, hidden, state,
                                                    input_bias, hidden_bias);
}

FiveTensors gru_cell_backward(c10::DispatchKeySet keys, const at::Tensor& grad,
                              const at::Tensor& workspace, bool has_bias) {
  if (have_tangent(grad, workspace)) {
    const auto [input, hidden, state] = gru_cell_gradient_formula(grad, workspace);
    if (!has_bias) return {input, hidden, state, at::Tensor(), at::Tensor()};
    return {input, hidden, state, input.sum(0), hidden.sum(0)};
  }
  return at::_ops::_thnn_fused_gru_cell_backward::redispatch(with_stock_autograd(keys), grad,
                                                             workspace, has_bias);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace loom::ops
