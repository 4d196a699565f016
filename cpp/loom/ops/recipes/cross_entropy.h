// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Cross entropy of logits as one operator. The composite makes three tensors of the logits' size
// (log-probabilities, their gradient, the logits' gradient) and takes the exponential of all twice;
// here there are two, probabilities and the logits' gradient, and none where no gradient is asked
// for. loom::cross_entropy and loom::cross_entropy_backward are operators, so that tracers see
// them. Thread: any; asynchronous.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <tuple>

namespace loom::ops {

/// `self`: (N, C) logits, `target`: (N) int64 classes, `reduction`: at::Reduction. A row whose
/// target is `ignore_index` does not count. Returns the loss, (N) or a scalar; the number of rows
/// that counted, a scalar; and the probabilities, (N, C) if they are to be kept, else (0): all in
/// float32, in float64 for logits of that. A target outside [0, C) throws IndexError at the next
/// synchronisation.
std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(const at::Tensor& self,
                                                             const at::Tensor& target,
                                                             std::int64_t reduction,
                                                             c10::SymInt ignore_index,
                                                             bool keep_softmax);

/// The gradient of the logits, of the shape of `softmax`, contiguous, in `dtype`. `total` and
/// `softmax` are the second and third result above.
at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& softmax,
                                  const at::Tensor& target, const at::Tensor& total,
                                  std::int64_t reduction, c10::SymInt ignore_index,
                                  c10::ScalarType dtype);

}  // namespace loom::ops
