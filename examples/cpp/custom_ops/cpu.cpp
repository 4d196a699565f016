// SPDX-License-Identifier: BSD-3-Clause
// The loops, which ATen has, and the kernels for CPU tensors.
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

#include "operators.h"

namespace custom_ops {

void myadd_loop(const at::Tensor& result, const at::Tensor& self, const at::Tensor& other) {
  at::Tensor to = result;
  at::cpu::add_outf(self, other, 1, to);
}

void mymatmul_loop(const at::Tensor& result, const at::Tensor& self, const at::Tensor& other) {
  at::Tensor to = result;
  if (to.dim() == 2) {
    at::cpu::mm_outf(self, other, to);
  } else {
    at::cpu::bmm_outf(self, other, to);
  }
}

namespace {

at::Tensor empty_result(const at::Tensor& like, const Result& result) {
  return at::empty(C10_AS_INTARRAYREF_SLOW(result.sizes), like.options().dtype(result.dtype));
}

at::Tensor myadd_cpu(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor result = empty_result(self, myadd_result(self, other));
  myadd_loop(result, self, other);
  return result;
}

at::Tensor mymatmul_cpu(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor result = empty_result(self, mymatmul_result(self, other));
  mymatmul_loop(result, self, other);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, CPU, m) {
  m.impl("myadd", TORCH_FN(myadd_cpu));
  m.impl("mymatmul", TORCH_FN(mymatmul_cpu));
}

}  // namespace custom_ops
