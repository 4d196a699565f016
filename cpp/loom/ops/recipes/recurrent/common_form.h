// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which calls of recurrent layers and cells are the common form that kernels of ours compute. Every
// other one is PyTorch's composite, errors included. Thread: any.

#include "loom/ops/recipes/recurrent/layer.h"

#include <ATen/core/List.h>
#include <c10/util/ArrayRef.h>

#include <vector>

namespace loom::ops::recurrent {

/// What a call gives to all its layers.
struct Call {
  Cell kind;
  at::Tensor input;                ///< 3-D; rows of a packed sequence or of a cell's batch: 2-D
  const at::Tensor* batch_sizes;   ///< of a packed sequence, else null
  std::vector<at::Tensor> states;  ///< hidden, and an LSTM's cell: layers x batch x hidden size
  at::TensorList params;           ///< weights and biases of all layers and directions
  bool has_biases;
  std::int64_t num_layers;
  bool bidirectional, batch_first;
};

/// The steps of a call; none if kernels of ours do not compute it, or not all of it is of `dtype`.
[[nodiscard]] Steps steps_of_common_form(const Call& call, c10::ScalarType dtype = at::kFloat);

}  // namespace loom::ops::recurrent
