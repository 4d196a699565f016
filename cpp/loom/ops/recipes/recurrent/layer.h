// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One layer of an LSTM, a GRU or a plain RNN in one direction, float32, as a product of the whole
// input and one command that walks along the sequence. Below autograd. Thread: any.

#include "loom/kernels/recurrent/cell.h"
#include "loom/ops/recipes/recurrent/steps.h"

#include <ATen/core/Tensor.h>

#include <array>

namespace loom::ops::recurrent {

using kernels::recurrent::Cell;

/// What a layer is computed from; all float32 on one loom device, or as run_bfloat16_layer() wants
/// it.
struct Layer {
  Cell kind = Cell::kLstm;
  Walk walk;
  at::Tensor input;                    ///< rows x features, or steps x batch x features
  at::Tensor hidden;                   ///< batch x hidden size, contiguous: the initial state
  at::Tensor cell;                     ///< of an LSTM: the same
  at::Tensor input_weight;             ///< gates * hidden size x features
  at::Tensor hidden_weight;            ///< gates * hidden size x hidden size, contiguous
  at::Tensor input_bias, hidden_bias;  ///< gates * hidden size, contiguous, or both undefined

  [[nodiscard]] std::int64_t hidden_size() const { return hidden.size(1); }
};

struct LayerResult {
  at::Tensor output;  ///< contiguous, sizes as the input's but for the last one
  at::Tensor hidden;  ///< batch x hidden size: after each sample's last step
  at::Tensor cell;    ///< of an LSTM: the same
  /// What the gradient needs of all rows beside the output, some of them undefined: activated
  /// gates, and what a cell keeps (kernels/recurrent/cell.h).
  at::Tensor gates, kept;
};

/// True if the kernels can run here: what multiply.h needs for float32.
[[nodiscard]] bool can_run_layer();

/// Without `keeps`, gates and kept of the result are of no use.
[[nodiscard]] LayerResult run_layer(const Layer& layer, bool keeps);

/// Both directions of a layer, of which nothing is kept: beside each other, if that suits them.
[[nodiscard]] std::array<LayerResult, 2> run_both(const std::array<Layer, 2>& layers);

/// Gradients; undefined where `wanted` says that they are not.
struct LayerGradient {
  at::Tensor input, hidden, cell, input_weight, hidden_weight, input_bias, hidden_bias;
};
struct LayerWanted {
  bool input, hidden, input_weight, hidden_weight, input_bias, hidden_bias;
};

/// `output_grad`, `hidden_grad` and `cell_grad` may be undefined. Requires: `result` is that of
/// run_layer(layer, true). Biases are not looked at.
[[nodiscard]] LayerGradient run_layer_backward(const Layer& layer, const LayerResult& result,
                                               const at::Tensor& output_grad,
                                               const at::Tensor& hidden_grad,
                                               const at::Tensor& cell_grad, LayerWanted wanted);

}  // namespace loom::ops::recurrent
