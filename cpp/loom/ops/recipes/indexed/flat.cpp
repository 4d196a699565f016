// SPDX-License-Identifier: BSD-3-Clause
// take and put_: a tensor as one long row of elements. What ATen refuses, and tensors with gaps,
// are left to its kernels.
#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/recipes/indexed/read_rows.h"
#include "loom/ops/recipes/indexed/write_rows.h"

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/take_native.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

bool is_flat(const at::Tensor& tensor) {
  return tensor.is_privateuseone() && tensor.layout() == c10::kStrided && !tensor.is_nested() &&
         !tensor.is_quantized() && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor._is_zerotensor() && tensor.numel() > 0;
}

bool is_flat_index(const at::Tensor& index, const at::Tensor& self) {
  return is_flat(index) && index.scalar_type() == c10::kLong && index.device() == self.device();
}

/// The dtypes that ATen's kernels know for sure.
bool is_common(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kLong ||
         dtype == c10::kInt || dtype == c10::kBool || dtype == c10::kBFloat16 ||
         dtype == c10::kHalf;
}

at::Tensor take(const at::Tensor& self, const at::Tensor& index) {
  if (!is_flat(self) || !is_common(self.scalar_type()) || !is_flat_index(index, self)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>("aten::take", "", self,
                                                                           index);
  }
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                         const TensorRef& places) {
    if (read_rows(grid, to, from, places)) return;
    // It says what is wrong.
    at::Tensor result = to.alias();
    at::native::copy_(result, at::native::take(from.alias(), places.alias()));
  };
  at::Tensor result = empty(index.sizes(), self.scalar_type(), self.device());
  launch("take", Custom{}, kernel, out(result), self.view({-1}), index);
  return result;
}

bool can_put(const at::Tensor& self, const at::Tensor& index, const at::Tensor& source,
             Combine how) {
  return is_flat(self) && is_common(self.scalar_type()) && is_flat_index(index, self) &&
         is_flat(source) && source.device() == self.device() &&
         source.scalar_type() == self.scalar_type() && source.numel() == index.numel() &&
         can_combine(how, self.scalar_type()) &&
         at::get_overlap_status(self, index) == at::MemOverlapStatus::No &&
         at::get_overlap_status(self, source) == at::MemOverlapStatus::No &&
         !at::globalContext().deterministicAlgorithms();
}

at::Tensor& put_(at::Tensor& self, const at::Tensor& index, const at::Tensor& source,
                 bool accumulate) {
  const RowWrite write{.how = accumulate ? Combine::kAdd : Combine::kCopy, .wraps = true};
  if (!can_put(self, index, source, write.how)) {
    return call_fallback<at::Tensor&, at::Tensor&, const at::Tensor&, const at::Tensor&, bool>(
        "aten::put_", "", self, index, source, accumulate);
  }
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& places,
                         const TensorRef& with, const RowWrite& how, bool adds) {
    if (write_rows(grid, to, to, places, with, how)) return;
    at::Tensor result = to.alias();
    result.put_(places.alias(), with.alias(), adds);
  };
  launch("put_", Custom{}, kernel, inout(self.view({-1})), index.view({-1}), source.view({-1}),
         write, accumulate);
  return self;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("take", TORCH_FN(take));
  m.impl("put_", TORCH_FN(put_));
}

}  // namespace loom::ops
