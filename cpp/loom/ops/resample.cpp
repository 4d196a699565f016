// SPDX-License-Identifier: BSD-3-Clause
// Resampling and padding, as one block.
#include "loom/ops/structured.h"

#include <ATen/ops/reflection_pad1d_backward_cpu_dispatch.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_backward_ops.h>
#include <ATen/ops/reflection_pad1d_cpu_dispatch.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_cpu_dispatch.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest2d_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_upsample_nearest2d, OneBlock, op::upsample_nearest2d_out,
             cpu::upsample_nearest2d_outf, op::upsample_nearest2d>(m);
  structured<meta::structured_upsample_nearest2d_backward, OneBlock,
             op::upsample_nearest2d_backward_grad_input, cpu::upsample_nearest2d_backward_outf,
             op::upsample_nearest2d_backward>(m);
  structured<meta::structured_upsample_bilinear2d, OneBlock, op::upsample_bilinear2d_out,
             cpu::upsample_bilinear2d_outf, op::upsample_bilinear2d>(m);
  structured<meta::structured_upsample_bilinear2d_backward, OneBlock,
             op::upsample_bilinear2d_backward_grad_input, cpu::upsample_bilinear2d_backward_outf,
             op::upsample_bilinear2d_backward>(m);
  structured<meta::structured_reflection_pad1d, OneBlock, op::reflection_pad1d_out,
             cpu::reflection_pad1d_outf, op::reflection_pad1d>(m);
  structured<meta::structured_reflection_pad1d_backward, OneBlock,
             op::reflection_pad1d_backward_grad_input, cpu::reflection_pad1d_backward_outf,
             op::reflection_pad1d_backward>(m);
  structured<meta::structured_replication_pad2d, OneBlock, op::replication_pad2d_out,
             cpu::replication_pad2d_outf, op::replication_pad2d>(m);
}

}  // namespace loom::ops
