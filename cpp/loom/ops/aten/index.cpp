// SPDX-License-Identifier: BSD-3-Clause
// Selection by index and embeddings. An index out of range is found by the kernel,
// so it is reported at the next synchronisation.
#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/number_check.h"
#include "loom/ops/launch/type_name.h"
#include "loom/ops/meta/structured_meta.h"
#include "loom/ops/recipes/indexed/listed_sums.h"
#include "loom/ops/recipes/indexed/read_rows.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/index_select_native.h>
#include <ATen/ops/index_select_ops.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/accumulate.h>
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

// Items of a dense tensor, of lines.inner bytes each. Runs on the worker.
void select_dense(Grid& grid, const TensorRef& output, const TensorRef& self,
                  const TensorRef& index, const Lines& lines) {
  TORCH_CHECK_INDEX(read_items(grid, output, self, index, lines), "index out of range in self");
}

void launch_index_select(const char* name, const at::Tensor& output, const at::Tensor& self,
                         std::int64_t dim, const at::Tensor& index) {
  if (output.numel() == 0 && index.numel() == 0) return;
  if (self.dim() > 0 && self.is_contiguous() && output.is_contiguous() && index.is_contiguous() &&
      output.numel() > 0 && self.numel() > 0 && !self.is_neg() && !self.is_conj()) {
    const auto sizes = self.sizes();
    const Lines lines{.outer = c10::multiply_integers(sizes.slice(0, dim)),
                      .items = sizes[dim],
                      .inner = c10::multiply_integers(sizes.slice(dim + 1)) *
                               static_cast<std::int64_t>(self.itemsize()),
                      .count = index.numel()};
    return launch(name, Custom{}, select_dense, out(output), self, index, lines);
  }
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
  launch(name, split, kernel, out(output), self, index, dim);
}

at::Tensor index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  detail::check_same_device<at::_ops::index_select>(self, dim, index);
  if (is_memory_only(self.scalar_type())) [[unlikely]] {
    return call_fallback<at::Tensor, const at::Tensor&, std::int64_t, const at::Tensor&>(
        "aten::index_select", "", self, dim, index);
  }
  dim = c10::maybe_wrap_dim(dim, self.dim());
  check_index_select(self, dim, index);
  at::Tensor output = empty(selected_sizes(self, dim, index), self.scalar_type(), self.device());
  launch_index_select("index_select", output, self, dim, index);
  return output;
}

at::Tensor& index_select_out(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                             at::Tensor& output) {
  detail::check_same_device<at::_ops::index_select_out>(self, dim, index, output);
  dim = c10::maybe_wrap_dim(dim, self.dim());
  check_index_select(self, dim, index);
  TORCH_CHECK(self.scalar_type() == output.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(output);
  at::assert_no_overlap(output, self);
  at::assert_no_overlap(output, index);
  at::native::resize_output(output, selected_sizes(self, dim, index));
  launch_index_select("index_select", output, self, dim, index);
  return output;
}

void check_indices(const at::Tensor& indices, int position, const char* function) {
  TORCH_CHECK(indices.scalar_type() == c10::kLong || indices.scalar_type() == c10::kInt,
              "Expected tensor for argument #", position,
              " 'indices' to have one of the following scalar types: Long, Int; but got ",
              type_name(indices), " instead (while checking arguments for ", function, ")");
}

// As ATen's, which is made of index_select and would be called so in errors.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, std::int64_t /*padding*/,
                     bool /*scale_grad_by_freq*/, bool /*sparse*/) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_indices(indices, 1, "embedding");
  detail::check_same_device<at::_ops::embedding>(weight, indices);
  const at::Tensor rows = indices.reshape(-1);
  at::Tensor output = empty(selected_sizes(weight, 0, rows), weight.scalar_type(), weight.device());
  launch_index_select("embedding", output, weight, 0, rows);
  if (indices.dim() == 1) return output;
  at::DimVector sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  return output.view(sizes);
}

// What is no row is ignored, as ATen does.
void add_embedding_gradients(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& indices, std::int64_t padding_index) {
  sum_listed_rows(grid, result, indices, {.rows = gradient}, padding_index);
}

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                                    std::int64_t weights, std::int64_t padding_index,
                                    bool scale_grad_by_freq) {
  check_indices(indices, 2, "embedding_backward");
  at::Tensor output = empty({weights, grad.size(-1)}, grad.scalar_type(), grad.device());
  const bool sums =
      grad.scalar_type() == c10::kFloat || c10::isReducedFloatingType(grad.scalar_type());
  if (!scale_grad_by_freq && sums && output.numel() > 0) {
    launch("embedding_dense_backward", Custom{}, add_embedding_gradients, out(output),
           grad.contiguous().view({indices.numel(), grad.size(-1)}), indices.contiguous(),
           padding_index);
    return output;
  }
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

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("index_select.out", TORCH_FN(index_select_out));
  m.impl("embedding", TORCH_FN(embedding));
  m.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
}

}  // namespace loom::ops
