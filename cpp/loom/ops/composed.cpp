// SPDX-License-Identifier: BSD-3-Clause
// Operators that ATen has CPU kernels for which are nothing but others in a row, all of which run
// here on all cores.
#include "loom/ops/fallback.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/roll_native.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

at::Tensor count_nonzero(const at::Tensor& self, c10::IntArrayRef dims) {
  return at::sum(at::ne(self, 0), dims);
}

at::Tensor roll(const at::Tensor& self, c10::IntArrayRef shifts, c10::IntArrayRef dims) {
  return at::native::roll(self, shifts, dims);
}

// CUDA takes masks and complex numbers in half precision, too.
at::Tensor trace(const at::Tensor& self) {
  const c10::ScalarType dtype = self.scalar_type();
  if (self.dim() == 2 && (dtype == c10::kBool || dtype == c10::kComplexHalf)) {
    return at::sum(self.diagonal());
  }
  return call_fallback<at::Tensor, const at::Tensor&>("aten::trace", "", self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("count_nonzero.dim_IntList", count_nonzero);
  m.impl("roll", roll);
  m.impl("trace", trace);
}

}  // namespace loom::ops
