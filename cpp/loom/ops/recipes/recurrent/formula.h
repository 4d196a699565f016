// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The gradient of a recurrent layer, written in operators that are differentiable themselves: for
// gradients of gradients, and for what looks at operators one by one. Thread: any.

#include "loom/ops/recipes/recurrent/layer.h"

namespace loom::ops::recurrent {

/// Undefined gradients of results count as 0; all gradients that the layer has are computed.
[[nodiscard]] LayerGradient layer_gradient_formula(const Layer& layer,
                                                   const at::Tensor& output_grad,
                                                   const at::Tensor& hidden_grad,
                                                   const at::Tensor& cell_grad);

}  // namespace loom::ops::recurrent
