// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The fused cells in operators that are differentiable themselves, and change none of their
// operands: for dtypes without a kernel, and for forward mode. Tensors are 2-D, as those of
// `_thnn_fused_lstm_cell` and `_thnn_fused_gru_cell`; biases may be undefined. Thread: any.

#include <ATen/core/Tensor.h>

#include <tuple>

namespace loom::ops {

/// State, cell, and the workspace: activated gates (input, forget, cell, output).
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_formula(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cell,
    const at::Tensor& input_bias, const at::Tensor& hidden_bias);

/// Gradients of the gates' sums and of the cell. One of the incoming gradients may be undefined.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> lstm_cell_gradient_formula(
    const at::Tensor& grad_hidden, const at::Tensor& grad_cell, const at::Tensor& cell,
    const at::Tensor& new_cell, const at::Tensor& workspace);

/// State, and the workspace: activated gates (reset, update, new), the state before, and the
/// hidden part of the new gate.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> gru_cell_formula(const at::Tensor& input,
                                                                  const at::Tensor& hidden,
                                                                  const at::Tensor& state,
                                                                  const at::Tensor& input_bias,
                                                                  const at::Tensor& hidden_bias);

/// Gradients of the input's gates, of the hidden ones, and of the state.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> gru_cell_gradient_formula(
    const at::Tensor& grad, const at::Tensor& workspace);

}  // namespace loom::ops
