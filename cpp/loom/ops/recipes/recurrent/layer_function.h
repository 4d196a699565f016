// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A recurrent layer with its gradients: one node of autograd's graph. Thread: any.

#include "loom/ops/recipes/recurrent/layer.h"

#include <array>

namespace loom::ops::recurrent {

/// The layer's output and last states; differentiable if `records`, which callers below autograd
/// do not ask for.
[[nodiscard]] LayerResult call_layer(const Layer& layer, bool records);

/// The same of a layer's two directions.
[[nodiscard]] std::array<LayerResult, 2> call_both(const std::array<Layer, 2>& layers,
                                                   bool records);

}  // namespace loom::ops::recurrent
