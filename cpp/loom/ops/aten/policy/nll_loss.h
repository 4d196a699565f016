// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of the negative log likelihood and of its gradient. Thread: any.

#include "loom/base/ceil_div.h"
#include "loom/ops/aten/structured.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace loom::ops {

/// Of an element of the target: a third of what it takes, since a call of the kernel costs some 5
/// us itself, and blocks of 10 us would pay half of that again.
inline constexpr double kNllCost = 3;

/// Samples of a block; all of them if there is but one block. A block adds up its losses and their
/// weights, which narrow types would not hold.
inline std::int64_t nll_block(const at::Tensor& self, const at::Tensor& target,
                              std::int64_t reduction) {
  const std::int64_t samples = self.dim() == 0 ? 0 : self.size(0);
  const bool cuts =
      self.dim() == target.dim() + 1 && target.dim() > 0 && samples == target.size(0) &&
      (reduction == at::Reduction::None || !c10::isReducedFloatingType(self.scalar_type()));
  if (!cuts || samples == 0) return samples;
  const auto elements = static_cast<double>(target.numel());
  return block_length(samples, kNllCost * elements / static_cast<double>(samples));
}

/// Runs on the worker; `kCpu` is the operator's kernel.
template <auto kCpu>
void nll_loss_in_blocks(Grid& grid, const TensorRef& output, const TensorRef& total,
                        const TensorRef& self, const TensorRef& target, const TensorRef& weight,
                        std::int64_t reduction, std::int64_t ignored, std::int64_t block) {
  const std::int64_t samples = self.sizes()[0], count = ceil_div(samples, block);
  const bool each = reduction == at::Reduction::None;
  const at::Tensor sums = at::zeros({2, count}, c10::TensorOptions(c10::kCPU).dtype(self.dtype()));
  const at::Tensor losses = sums.select(0, 0), weights = sums.select(0, 1);
  grid.run(count, [&](std::int64_t index) {
    const std::int64_t begin = index * block, length = std::min(block, samples - begin);
    at::Tensor loss = each ? output.alias_slice(0, begin, length) : losses.select(0, index);
    at::Tensor of_block = weights.select(0, index);
    kCpu(self.alias_slice(0, begin, length), target.alias_slice(0, begin, length), weight.alias(),
         each ? at::Reduction::None : at::Reduction::Sum, ignored, loss, of_block);
  });
  const at::Tensor all = weights.sum();
  total.alias().copy_(all);
  if (each) return;
  const at::Tensor sum = losses.sum();
  output.alias().copy_(reduction == at::Reduction::Mean ? sum.div(all) : sum);
}

/// Throws what the kernel says about the dtypes. Stand-ins are ones: a label that is ignored has no
/// class to be in.
template <auto kCpu>
void check_nll_dtypes(const std::array<at::Tensor, 2>& outputs, const at::Tensor& self,
                      const at::Tensor& target, const std::optional<at::Tensor>& weight,
                      std::int64_t reduction) {
  if (target.numel() == 0) return;
  probe_dtypes<kCpu>(outputs, self, target, weight, reduction, std::int64_t{1});
}

/// Samples are independent: a block has its own sums.
struct NllLoss {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, const at::Tensor& target,
                     const std::optional<at::Tensor>& weight, std::int64_t reduction,
                     std::int64_t ignored) {
    check_nll_dtypes<kCpu>(outputs, self, target, weight, reduction);
    const std::int64_t block = nll_block(self, target, reduction);
    if (self.dim() != 2 || block == self.size(0)) {
      return launch_cpu<kCpu>(name, Whole{}, outputs, self, target, weight, reduction, ignored);
    }
    ops::launch(name, Custom{}, nll_loss_in_blocks<kCpu>, out(outputs[0]), out(outputs[1]), self,
                target, weight, reduction, ignored, block);
  }
};

/// Samples are independent once the weights have been added up.
struct NllGradient {
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& grad,
                     const at::Tensor& self, const at::Tensor& target,
                     const std::optional<at::Tensor>&, std::int64_t, std::int64_t,
                     const at::Tensor&) {
    constexpr std::int8_t kWhole = SlicePlan::kWhole;
    if (self.dim() != 2 || target.dim() != 1) {
      return {.dims = {kWhole, kWhole, kWhole, kWhole, kWhole, kWhole}};
    }
    const std::int8_t grads = grad.dim() == 1 ? 0 : kWhole;
    return {.dims = {0, grads, 0, 0, kWhole, kWhole},
            .cost = static_cast<double>(outputs[0].size(1))};
  }
};

}  // namespace loom::ops
