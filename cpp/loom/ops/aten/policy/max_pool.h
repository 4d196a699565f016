// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of max pooling: a kernel of our own for contiguous planes, else ATen's. Thread: any.

#include "loom/ops/aten/policy/samples.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/recipes/rows/max_pool.h"

namespace loom::ops {

struct MaxPool {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                     at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
    if (launch_max_pool(name, outputs[0], outputs[1], self, kernel, stride, padding, dilation)) {
      return;
    }
    launch_cpu<kCpu>(name, Samples<2>::split(outputs, self), outputs, self, kernel, stride, padding,
                     dilation, ceil_mode);
  }
};

}  // namespace loom::ops
