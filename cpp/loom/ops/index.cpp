// SPDX-License-Identifier: BSD-3-Clause
// Selection by index and embeddings. An index out of range is found by the kernel,
// so it is reported at the next synchronisation.
#include "loom/ops/empty.h"
#include "loom/ops/launch.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/index_select_native.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

constexpr std::int8_t kWhole = SlicePlan::kWhole;

void check_index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == c10::kLong || index.scalar_type() == c10::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK_INDEX(dim == 0 || dim < self.dim(), "index_select(): Indexing dim ", dim,
                    " is out of bounds of tensor");
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
              " value(s)");
}

at::DimVector selected_sizes(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  at::DimVector sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0) sizes[dim] = index.numel();
  return sizes;
}

void launch_index_select(const at::Tensor& output, const at::Tensor& self, std::int64_t dim,
                         const at::Tensor& index) {
  if (output.numel() == 0 && index.numel() == 0) return;
  const auto kernel = [](at::Tensor to, const at::Tensor& from, const at::Tensor& which,
                         std::int64_t along) {
    at::native::index_select_out_cpu_(from, along, which, to);
  };
  const auto along = static_cast<std::int8_t>(dim);
  const bool cuts = self.dim() > 0 && index.dim() == 1;
  const double cost = 2 * static_cast<double>(output.numel()) /
                      static_cast<double>(std::max<std::int64_t>(index.numel(), 1));
  const Along split = cuts ? Along{.dims = {along, kWhole, 0}, .cost = cost}
                           : Along{.dims = {kWhole, kWhole, kWhole}};
  launch("index_select", split, kernel, out(output), self, index, dim);
}

at::Tensor index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  check_index_select(self, dim, index);
  at::Tensor output = empty(selected_sizes(self, dim, index), self.scalar_type(), self.device());
  launch_index_select(output, self, dim, index);
  return output;
}

at::Tensor& index_select_out(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                             at::Tensor& output) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  check_index_select(self, dim, index);
  TORCH_CHECK(self.scalar_type() == output.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(output);
  at::assert_no_overlap(output, self);
  at::assert_no_overlap(output, index);
  at::native::resize_output(output, selected_sizes(self, dim, index));
  launch_index_select(output, self, dim, index);
  return output;
}

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                                    std::int64_t weights, std::int64_t padding_index,
                                    bool scale_grad_by_freq) {
  TORCH_CHECK(indices.scalar_type() == c10::kLong || indices.scalar_type() == c10::kInt,
              "Expected tensor for argument #2 'indices' to have one of the following scalar "
              "types: Long, Int; but got ",
              indices.toString(), " instead (while checking arguments for embedding_backward)");
  at::Tensor output = empty({weights, grad.size(-1)}, grad.scalar_type(), grad.device());
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, const at::Tensor& which,
                         std::int64_t count, std::int64_t padding, bool by_frequency) {
    to.copy_(at::native::embedding_dense_backward_cpu(from, which, count, padding, by_frequency));
  };
  // Rows of the result meet in the indices, columns do not.
  const std::int64_t columns = grad.size(-1);
  const double cost = 2 * static_cast<double>(indices.numel() + weights);
  const Along split{.dims = {1, static_cast<std::int8_t>(grad.dim() - 1), kWhole},
                    .block = std::max<std::int64_t>(64, block_length(columns, cost))};
  launch("embedding_dense_backward", split, kernel, out(output), grad, indices, weights,
         padding_index, scale_grad_by_freq);
  return output;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("index_select.out", TORCH_FN(index_select_out));
  m.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
}

}  // namespace loom::ops
