// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of windows over images (pooling, resampling, padding), cut along the batch. Thread: any.

#include "loom/ops/structured.h"

#include <algorithm>

namespace loom::ops {

/// Samples (or channels, where there is no batch) do not meet.
struct Samples {
  template <std::size_t kOutputs, class... Argument>
  static Along split(const std::array<at::Tensor, kOutputs>& outputs, const at::Tensor& input,
                     const Argument&...) {
    const auto elements = static_cast<double>(std::max(outputs[0].numel(), input.numel()));
    const auto items = static_cast<double>(std::max<std::int64_t>(input.size(0), 1));
    return {.cost = 4 * elements / items};
  }
};

/// The CPU kernels of paddings give a new result the memory format of their first argument.
struct Padding : Samples {
  static constexpr bool kFollowsFormat = true;
};

}  // namespace loom::ops
