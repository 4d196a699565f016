// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The gradient of a layer of an LSTM, written in operators that are differentiable themselves: for
// gradients of gradients, and for what looks at operators one by one. Thread: any.

#include "loom/ops/recipes/recurrent/lstm_layer.h"

#include <array>

namespace loom::ops {

/// Gradients of input, hidden, cell, both weights and either bias, in this order. Undefined
/// gradients of results count as 0.
[[nodiscard]] std::array<at::Tensor, 6> lstm_layer_gradient_formula(const LstmLayer& layer,
                                                                    const at::Tensor& output_grad,
                                                                    const at::Tensor& hidden_grad,
                                                                    const at::Tensor& cell_grad);

}  // namespace loom::ops
