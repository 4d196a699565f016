// SPDX-License-Identifier: BSD-3-Clause
// Losses and sums of embeddings.
#include "loom/ops/meta/rule.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>

#include <algorithm>
#include <numeric>

namespace loom::ops::inference {
namespace {

constexpr std::int64_t kSum = 0, kMean = 1, kMax = 2;  // modes of an embedding bag

bool is_index(c10::ScalarType dtype) { return dtype == c10::kLong || dtype == c10::kInt; }

Inferred like(const at::Tensor& tensor) {
  if (!is_floating(tensor.scalar_type())) return std::nullopt;
  return {{Geometry(tensor.scalar_type(), tensor.sizes())}};
}

/// Whether ATen sums the embeddings with one pass over the indices, and notes no bags.
bool sums_at_once(const at::Tensor& weight, const at::Tensor& scale, std::int64_t padding) {
  const auto dtype = weight.scalar_type();
  return (dtype == c10::kFloat || dtype == c10::kHalf || dtype == c10::kBFloat16) &&
         weight.stride(1) == 1 && padding < 0 && (!scale.defined() || scale.stride(0) == 1);
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
//  include_last_offset, padding_idx)
Inferred bags(Arguments arguments, bool has_gradient) {
  const at::Tensor &weight = tensor_at(arguments, 0), &indices = tensor_at(arguments, 1),
                   &offsets = tensor_at(arguments, 2);
  const std::int64_t mode = arguments[4].toInt(), padding = arguments[8].toInt();
  const at::Tensor scale = optional_tensor_at(arguments, 6);
  const bool has_last = arguments[7].toBool();
  const auto dtype = weight.scalar_type();
  if (!is_floating(dtype) || weight.dim() != 2 || indices.dim() != 1 || offsets.dim() != 1 ||
      !is_index(indices.scalar_type()) || !is_index(offsets.scalar_type()) || offsets.numel() < 1 ||
      indices.numel() < 1 || mode < kSum || mode > kMax) {
    return std::nullopt;
  }
  if (scale.defined() && (mode != kSum || scale.scalar_type() != dtype || scale.dim() != 1 ||
                          scale.numel() != indices.numel())) {
    return std::nullopt;
  }
  const auto index = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const std::int64_t count = offsets.numel() - (has_last ? 1 : 0), width = weight.size(1);
  const bool notes_bags = mode != kSum || !sums_at_once(weight, scale, padding);
  const std::int64_t sized = has_gradient || mode != kSum ? count : offsets.numel();
  return {{Geometry(dtype, {count, width}), Geometry(index, {notes_bags ? indices.numel() : 0}),
           Geometry(index, {sized}),
           mode == kMax ? Geometry(index, {count, width}) : Geometry(index, {sized})}};
}

bool are_predictions(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  const auto dtype = self.scalar_type();
  return is_floating(dtype) && target.scalar_type() == dtype && target.sizes() == self.sizes() &&
         (!weight.defined() ||
          (weight.scalar_type() == dtype && at::is_expandable_to(weight.sizes(), self.sizes())));
}

/// Scores of classes for each pixel, and the class of each.
bool are_labelled_images(const at::Tensor& self, const at::Tensor& target,
                         const at::Tensor& weight) {
  if (self.dim() != 4 || target.dim() != 3 || self.numel() == 0 ||
      !is_floating(self.scalar_type()) || target.scalar_type() != c10::kLong) {
    return false;
  }
  return target.size(0) == self.size(0) && target.size(1) == self.size(2) &&
         target.size(2) == self.size(3) &&
         (!weight.defined() || (weight.scalar_type() == self.scalar_type() && weight.dim() == 1 &&
                                weight.numel() == self.size(1)));
}

}  // namespace

// (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
Inferred ctc_loss(Arguments arguments) {
  const at::Tensor &scores = tensor_at(arguments, 0), &targets = tensor_at(arguments, 1);
  if (scores.dim() != 3 || !is_real(scores.scalar_type()) || !is_index(targets.scalar_type())) {
    return std::nullopt;
  }
  const std::int64_t steps = scores.size(0), batch = scores.size(1), labels = scores.size(2);
  const auto inputs = arguments[2].toDimVector(), lengths = arguments[3].toDimVector();
  const std::int64_t blank = arguments[4].toInt();
  const auto outside = [](std::int64_t low, std::int64_t high) {
    return [=](std::int64_t length) { return length < low || length > high; };
  };
  if (batch == 0 || steps == 0 || blank < 0 || blank >= labels ||
      static_cast<std::int64_t>(inputs.size()) != batch || inputs.size() != lengths.size() ||
      std::ranges::any_of(inputs, outside(0, steps)) ||
      std::ranges::any_of(lengths, outside(0, targets.numel()))) {
    return std::nullopt;
  }
  const std::int64_t longest = *std::ranges::max_element(lengths);
  const bool fits =
      targets.dim() == 1
          ? targets.numel() == std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})
          : targets.dim() == 2 && targets.size(0) == batch && targets.size(1) >= longest;
  if (!fits) return std::nullopt;
  return {{Geometry(scores.scalar_type(), {batch}),
           Geometry(scores.scalar_type(), {batch, steps, 2 * longest + 1})}};
}

// (self, target, reduction)
Inferred multilabel_margin_loss(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &target = tensor_at(arguments, 1);
  if (!is_real(self.scalar_type()) || target.scalar_type() != c10::kLong || self.dim() > 2 ||
      self.numel() == 0 || target.sizes() != self.sizes()) {
    return std::nullopt;
  }
  const bool scalar = arguments[2].toInt() != 0 || target.dim() <= 1;
  return {{Geometry(self.scalar_type(), scalar ? c10::IntArrayRef() : self.sizes().slice(0, 1)),
           Geometry(self.scalar_type(), target.sizes())}};
}

// (self, target, reduction, delta)
Inferred huber_loss(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto each = pointwise({self, tensor_at(arguments, 1)});
  if (!each || !(arguments[3].toDouble() > 0)) return std::nullopt;
  if (arguments[2].toInt() != at::Reduction::None) return {{Geometry(self.scalar_type(), {})}};
  return {{*each}};
}

// (grad_output, self, target, ..., *, grad_input)
Inferred loss_gradient(Arguments arguments) {
  const auto each =
      pointwise({tensor_at(arguments, 0), tensor_at(arguments, 1), tensor_at(arguments, 2)});
  if (!each) return std::nullopt;
  return {{*each}};
}

// (self, target, weight, reduction)
Inferred binary_cross_entropy(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!are_predictions(self, tensor_at(arguments, 1), optional_tensor_at(arguments, 2))) {
    return std::nullopt;
  }
  const bool each = arguments[3].toInt() == at::Reduction::None;
  return {{each ? Geometry::like(self) : Geometry(self.scalar_type(), {})}};
}

// (grad_output, self, target, weight, reduction)
Inferred binary_cross_entropy_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  if (!are_predictions(self, tensor_at(arguments, 2), optional_tensor_at(arguments, 3)) ||
      gradient.scalar_type() != self.scalar_type() ||
      (gradient.dim() != 0 && gradient.sizes() != self.sizes())) {
    return std::nullopt;
  }
  return {{Geometry::like(self)}};
}

// (self, target, p, margin, weight, reduction)
Inferred multi_margin_loss(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &target = tensor_at(arguments, 1);
  const at::Tensor weight = optional_tensor_at(arguments, 4);
  const std::int64_t rows = self.dim() == 2 ? self.size(0) : 1;
  if (!is_real(self.scalar_type()) || self.dim() > 2 || self.numel() == 0 || target.dim() > 1 ||
      target.scalar_type() != c10::kLong || target.numel() != rows || !arguments[2].isInt() ||
      (arguments[2].toInt() != 1 && arguments[2].toInt() != 2)) {
    return std::nullopt;
  }
  if (weight.defined() && (weight.scalar_type() != self.scalar_type() || weight.dim() > 1 ||
                           weight.numel() != self.numel() / rows)) {
    return std::nullopt;
  }
  const bool each = arguments[5].toInt() == at::Reduction::None && target.dim() > 0;
  return {{Geometry(self.scalar_type(), each ? c10::IntArrayRef(rows) : c10::IntArrayRef())}};
}

// (self, target, weight, reduction, ignore_index)
Inferred nll_loss2d(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::Tensor& target = tensor_at(arguments, 1);
  if (!are_labelled_images(self, target, optional_tensor_at(arguments, 2))) return std::nullopt;
  const bool each = arguments[3].toInt() == at::Reduction::None;
  return {{Geometry(self.scalar_type(), each ? target.sizes() : c10::IntArrayRef()),
           Geometry(self.scalar_type(), {})}};
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight)
Inferred nll_loss2d_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1),
                   &target = tensor_at(arguments, 2), &total = tensor_at(arguments, 6);
  const bool each = arguments[4].toInt() == at::Reduction::None;
  if (!are_labelled_images(self, target, optional_tensor_at(arguments, 3)) || !is_canonical(self) ||
      gradient.scalar_type() != self.scalar_type() || total.scalar_type() != self.scalar_type() ||
      total.numel() != 1 ||
      (each ? gradient.sizes() != target.sizes() : gradient.dim() > 1 || gradient.numel() != 1)) {
    return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), self.sizes())}};
}

// (grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq,
//  mode, sparse, per_sample_weights, padding_idx)
Inferred embedding_bag_backward(Arguments arguments) {
  const at::Tensor& gradient = tensor_at(arguments, 0);
  if (!is_real(gradient.scalar_type()) || gradient.dim() != 2 || arguments[9].toBool() ||
      tensor_at(arguments, 1).dim() != 1) {
    return std::nullopt;
  }
  return {{Geometry(gradient.scalar_type(), {arguments[6].toInt(), gradient.size(1)})}};
}

// (grad, weight, indices, offsets, offset2bag, mode, padding_idx)
Inferred embedding_bag_weights_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &weight = tensor_at(arguments, 1),
                   &indices = tensor_at(arguments, 2);
  if (!is_real(gradient.scalar_type()) || weight.scalar_type() != gradient.scalar_type() ||
      gradient.dim() != 2 || weight.dim() != 2 || gradient.size(1) != weight.size(1) ||
      indices.dim() != 1 || arguments[5].toInt() != kSum) {
    return std::nullopt;
  }
  return {{Geometry(gradient.scalar_type(), {indices.numel()})}};
}

Inferred like_first(Arguments arguments) { return like(tensor_at(arguments, 0)); }
Inferred like_second(Arguments arguments) { return like(tensor_at(arguments, 1)); }

Inferred embedding_bag(Arguments arguments) { return bags(arguments, /*has_gradient=*/true); }
Inferred embedding_bag_forward_only(Arguments arguments) {
  return bags(arguments, /*has_gradient=*/false);
}

}  // namespace loom::ops::inference
