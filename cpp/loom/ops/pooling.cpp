// SPDX-License-Identifier: BSD-3-Clause
// Pooling windows, cut along the batch.
#include "loom/ops/structured.h"

#include <ATen/ops/adaptive_max_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/avg_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_backward_ops.h>
#include <ATen/ops/avg_pool3d_cpu_dispatch.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>

#include <algorithm>

namespace loom::ops {
namespace {

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

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_max_pool2d_with_indices, Samples, op::max_pool2d_with_indices_out,
             cpu::max_pool2d_with_indices_outf, op::max_pool2d_with_indices>(m);
  structured<meta::structured_max_pool2d_with_indices_backward, Samples,
             op::max_pool2d_with_indices_backward_grad_input,
             cpu::max_pool2d_with_indices_backward_outf, op::max_pool2d_with_indices_backward>(m);
  structured<meta::structured_avg_pool2d, Samples, op::avg_pool2d_out, cpu::avg_pool2d_outf,
             op::avg_pool2d>(m);
  structured<meta::structured_avg_pool2d_backward, Samples, op::avg_pool2d_backward_grad_input,
             cpu::avg_pool2d_backward_outf, op::avg_pool2d_backward>(m);
  structured<meta::structured_avg_pool3d, Samples, op::avg_pool3d_out, cpu::avg_pool3d_outf,
             op::avg_pool3d>(m);
  structured<meta::structured_avg_pool3d_backward, Samples, op::avg_pool3d_backward_grad_input,
             cpu::avg_pool3d_backward_outf, op::avg_pool3d_backward>(m);
  structured<meta::structured_adaptive_max_pool2d, Samples, op::adaptive_max_pool2d_out,
             cpu::adaptive_max_pool2d_outf, op::adaptive_max_pool2d>(m);
  structured<meta::structured_adaptive_max_pool2d_backward, Samples,
             op::adaptive_max_pool2d_backward_grad_input, cpu::adaptive_max_pool2d_backward_outf,
             op::adaptive_max_pool2d_backward>(m);
}

}  // namespace loom::ops
