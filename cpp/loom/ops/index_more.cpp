// SPDX-License-Identifier: BSD-3-Clause
// Gathers, scatters, sorts and triangles, as one block.
#include "loom/ops/structured.h"

#include <ATen/ops/gather_cpu_dispatch.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_add_cpu_dispatch.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_cpu_dispatch.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/renorm_cpu_dispatch.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/scatter_add_cpu_dispatch.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_cpu_dispatch.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce_cpu_dispatch.h>
#include <ATen/ops/scatter_reduce_meta.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/sort_cpu_dispatch.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/topk_cpu_dispatch.h>
#include <ATen/ops/topk_meta.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/tril_cpu_dispatch.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_cpu_dispatch.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/triu_ops.h>

namespace loom::ops {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace cpu = at::cpu;
  namespace meta = at::meta;
  namespace op = at::_ops;
  structured<meta::structured_gather, OneBlock, op::gather_out, cpu::gather_outf, op::gather>(m);
  structured<meta::structured_scatter_src, OneBlock, op::scatter_src_out, cpu::scatter_outf,
             op::scatter_src, op::scatter__src>(m);
  structured<meta::structured_scatter_value, OneBlock, op::scatter_value_out, cpu::scatter_outf,
             op::scatter_value, op::scatter__value>(m);
  structured<meta::structured_scatter_reduce, OneBlock, op::scatter_reduce_out, cpu::scatter_outf,
             op::scatter_reduce, op::scatter__reduce>(m);
  structured<meta::structured_scatter_value_reduce, OneBlock, op::scatter_value_reduce_out,
             cpu::scatter_outf, op::scatter_value_reduce, op::scatter__value_reduce>(m);
  structured<meta::structured_scatter_add, OneBlock, op::scatter_add_out, cpu::scatter_add_outf,
             op::scatter_add, op::scatter_add_>(m);
  structured<meta::structured_scatter_reduce_two, OneBlock, op::scatter_reduce_two_out,
             cpu::scatter_reduce_outf, op::scatter_reduce_two, op::scatter_reduce__two>(m);
  structured<meta::structured_index_add, OneBlock, op::index_add_out, cpu::index_add_outf,
             op::index_add, op::index_add_>(m);
  structured<meta::structured_index_copy, OneBlock, op::index_copy_out, cpu::index_copy_outf,
             op::index_copy, op::index_copy_>(m);
  structured<meta::structured_tril, OneBlock, op::tril_out, cpu::tril_outf, op::tril, op::tril_>(m);
  structured<meta::structured_triu, OneBlock, op::triu_out, cpu::triu_outf, op::triu, op::triu_>(m);
  structured<meta::structured_sort_stable, OneBlock, op::sort_values_stable, cpu::sort_outf,
             op::sort_stable>(m);
  structured<meta::structured_topk, OneBlock, op::topk_values, cpu::topk_outf, op::topk>(m);
  structured<meta::structured_renorm, OneBlock, op::renorm_out, cpu::renorm_outf, op::renorm,
             op::renorm_>(m);
}

}  // namespace loom::ops
