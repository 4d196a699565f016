// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/single_index.h"

#include "loom/ops/launch/empty.h"
#include "loom/ops/recipes/indexed/read_rows.h"
#include "loom/ops/recipes/indexed/write_rows.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>

namespace loom::ops {
namespace {

struct Single {
  at::Tensor index;  ///< a dense vector
  std::int64_t dim;
};

/// The only index among them, of integers.
std::optional<Single> single_of(const at::Tensor& self, const Indices& indices) {
  std::optional<Single> single;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    const std::optional<at::Tensor> index = indices[d];
    if (!index || !index->defined()) continue;
    const auto dtype = index->scalar_type();
    if (single || (dtype != c10::kLong && dtype != c10::kInt) || index->device() != self.device() ||
        index->numel() == 0) {
      return std::nullopt;
    }
    single = {index->reshape({-1}).contiguous(), static_cast<std::int64_t>(d)};
  }
  return single;
}

/// The dtypes that ATen's kernels know for sure.
bool is_common(c10::ScalarType dtype) {
  return (c10::isIntegralType(dtype, /*includeBool=*/true) &&
          !c10::isBarebonesUnsignedType(dtype)) ||
         dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf ||
         dtype == c10::kBFloat16 || dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

bool is_plain(const at::Tensor& self) {
  return self.layout() == c10::kStrided && self.is_contiguous() && !self.is_conj() &&
         !self.is_neg() && !self._is_zerotensor() && self.numel() > 0 && self.dim() > 0 &&
         is_common(self.scalar_type());
}

Indices as_indices(const at::Tensor& index, std::int64_t dim) {
  Indices indices;
  for (std::int64_t d = 0; d < dim; ++d) indices.push_back(std::nullopt);
  indices.push_back(index);
  return indices;
}

}  // namespace

std::optional<at::Tensor> read_single_index(const at::Tensor& self, const Indices& indices,
                                            c10::IntArrayRef selected) {
  if (!is_plain(self)) return std::nullopt;
  const auto single = single_of(self, indices);
  if (!single || single->dim != 0) return std::nullopt;
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                         const TensorRef& index) {
    if (read_rows(grid, to, from, index)) return;
    // It says what is wrong.
    at::Tensor result = to.alias();
    at::native::copy_(result, at::index(from.alias(), as_indices(index.alias(), 0)));
  };
  at::Tensor result = empty(selected, self.scalar_type(), self.device());
  launch("index", Custom{}, kernel, out(result), self, single->index);
  return result;
}

bool write_single_index(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
                        bool accumulate, c10::IntArrayRef selected) {
  if (!is_plain(self) || values.scalar_type() != self.scalar_type() ||
      values.layout() != c10::kStrided || values._is_zerotensor()) {
    return false;
  }
  const auto single = single_of(self, indices);
  if (!single || at::get_overlap_status(self, single->index) != at::MemOverlapStatus::No) {
    return false;
  }
  const RowWrite write{
      .how = accumulate ? Combine::kAdd : Combine::kCopy, .dim = single->dim, .wraps = true};
  if (!can_combine(write.how, self.scalar_type())) return false;
  at::DimVector sizes(self.sizes().begin(), self.sizes().end());
  sizes[single->dim] = single->index.numel();
  const bool elsewhere = values.device() != self.device();
  const at::Tensor given = elsewhere ? values.to(self.device()) : values;
  if (at::get_overlap_status(self, given) != at::MemOverlapStatus::No) return false;
  const at::Tensor rows = given.expand(selected).reshape(sizes).contiguous().resolve_conj();
  if (!can_write_rows(write, self, self, single->index, rows)) return false;
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& index,
                         const TensorRef& with, const RowWrite& how, bool adds) {
    if (write_rows(grid, to, to, index, with, how)) return;
    at::Tensor result = to.alias();
    result.index_put_(as_indices(index.alias(), how.dim), with.alias(), adds);
  };
  launch("index_put_", Custom{}, kernel, inout(self), single->index, rows, write, accumulate);
  return true;
}

}  // namespace loom::ops
