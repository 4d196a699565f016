// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of the gradient of the negative log likelihood. Thread: any.

#include "loom/ops/structured.h"

namespace loom::ops {

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
