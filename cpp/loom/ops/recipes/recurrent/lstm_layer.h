// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One layer of an LSTM in one direction, float32, as a product of the whole input and one command
// that walks along the sequence. Below autograd. Thread: any.

#include <ATen/core/Tensor.h>

namespace loom::ops {

/// What a layer is computed from; all float32 on one loom device.
struct LstmLayer {
  at::Tensor input;                    ///< steps x batch x features
  at::Tensor hidden, cell;             ///< batch x hidden size, contiguous: the initial states
  at::Tensor input_weight;             ///< 4 hidden x features
  at::Tensor hidden_weight;            ///< 4 hidden x hidden, contiguous
  at::Tensor input_bias, hidden_bias;  ///< 4 hidden, or both undefined
  bool reverse = false;                ///< from the last step to the first
};

struct LstmResult {
  at::Tensor output;        ///< steps x batch x hidden, contiguous
  at::Tensor hidden, cell;  ///< batch x hidden: after the last step
  at::Tensor gates, cells;  ///< for the gradient: activated gates and cell states of all steps
};

/// True if the kernels can run here: what multiply.h needs for float32.
[[nodiscard]] bool can_run_lstm_layer();

/// Without `keeps`, gates and cells of the result are of no use.
[[nodiscard]] LstmResult lstm_layer(const LstmLayer& layer, bool keeps);

/// Gradients; undefined where `wanted` says that they are not.
struct LstmGradient {
  at::Tensor input, hidden, cell, input_weight, hidden_weight;
  at::Tensor bias;  ///< of either
};
struct LstmWanted {
  bool input, hidden, input_weight, hidden_weight, bias;
};

/// `output_grad`, `hidden_grad` and `cell_grad` may be undefined. Requires: `kept` comes from
/// lstm_layer(layer, true). Biases are not looked at.
[[nodiscard]] LstmGradient lstm_layer_backward(const LstmLayer& layer, const LstmResult& kept,
                                               const at::Tensor& output_grad,
                                               const at::Tensor& hidden_grad,
                                               const at::Tensor& cell_grad, LstmWanted wanted);

}  // namespace loom::ops
