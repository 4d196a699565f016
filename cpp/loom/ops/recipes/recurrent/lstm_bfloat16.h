// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An LSTM's layer of bfloat16 of which no gradient is wanted: products of bfloat16, sums and cells
// in float32, states that are rounded as the output is. Where the processor multiplies bfloat16 it
// reads half the memory that weights of float32 have. Thread: any.

#include "loom/ops/recipes/recurrent/layer.h"

#include <array>

namespace loom::ops::recurrent {

/// Whether the processor and PyTorch's settings allow it.
[[nodiscard]] bool can_run_bfloat16_layer();

/// As run_layer() and run_both() without what gradients need. Everything of the layer is bfloat16
/// but for the cell, which is float32, as it is in the result.
[[nodiscard]] LayerResult run_bfloat16_layer(const Layer& layer);
[[nodiscard]] std::array<LayerResult, 2> run_both_bfloat16(const std::array<Layer, 2>& layers);

}  // namespace loom::ops::recurrent
