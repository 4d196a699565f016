// SPDX-License-Identifier: BSD-3-Clause
// Selection by index, embeddings and concatenation. An index out of range is found by the kernel,
// so it is reported at the next synchronisation.
#include "loom/ops/empty.h"
#include "loom/ops/structured.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/embedding_dense_backward_native.h>
#include <ATen/ops/index_select_native.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <vector>

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

/// A range of one tensor of a concatenation: what a block copies.
struct CatPiece {
  std::size_t tensor;
  std::int64_t offset;  // in the result, along the dimension of concatenation
  std::int64_t begin, length;
};

struct CatCommand {
  TensorRef output;
  std::vector<TensorRef> inputs;
  std::int64_t dim;

  void operator()() {
    Queue& queue = *Queue::current();
    const std::vector<CatPiece> pieces = cut();
    Grid(queue.cores(), queue.id().priority)
        .run(static_cast<std::int64_t>(pieces.size()),
             [&](std::int64_t index) { copy(pieces[static_cast<std::size_t>(index)]); });
  }
  void accesses(AccessList& list) const {
    output.append_access(list, true);
    for (const TensorRef& input : inputs) input.append_access(list, false);
  }

 private:
  // Ranges of the dimension that is concatenated: each lies together in both tensors, or nearly.
  [[nodiscard]] std::vector<CatPiece> cut() const {
    std::vector<CatPiece> pieces;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const TensorRef& input = inputs[i];
      if (input.numel() == 0) continue;
      const std::int64_t items = input.sizes()[dim];
      const std::int64_t block =
          block_length(items, static_cast<double>(input.numel()) / static_cast<double>(items));
      for (std::int64_t begin = 0; begin < items; begin += block) {
        pieces.push_back({i, offset + begin, begin, std::min(block, items - begin)});
      }
      offset += items;
    }
    return pieces;
  }
  void copy(const CatPiece& piece) const {
    at::Tensor to = output.alias_slice(dim, piece.offset, piece.length);
    at::native::copy_(to, inputs[piece.tensor].alias_slice(dim, piece.begin, piece.length));
  }
};

void launch_cat(const at::Tensor& output, const at::ITensorListRef& tensors, std::int64_t dim) {
  CatCommand command{TensorRef(output), {}, 0};
  for (const at::Tensor& tensor : tensors) {
    check_operand_device("cat", output.device(), tensor);
    // ATen lets empty vectors take part whatever the other shapes are.
    if (tensor.numel() != 0) command.inputs.emplace_back(tensor);
  }
  if (output.numel() == 0) return;
  command.dim = c10::maybe_wrap_dim(dim, output.dim());
  current_queue(output.device().index()).submit("cat", std::move(command));
}

at::Tensor cat(const at::ITensorListRef& tensors, std::int64_t dim) {
  StructuredMeta<at::meta::structured_cat, OutputKind::kNew, 1> meta({});
  meta.meta(tensors, dim);
  launch_cat(meta.outputs()[0], tensors, dim);
  return meta.take_outputs()[0];
}

at::Tensor& cat_out(const at::ITensorListRef& tensors, std::int64_t dim, at::Tensor& output) {
  StructuredMeta<at::meta::structured_cat, OutputKind::kGiven, 1> meta({output});
  meta.meta(tensors, dim);
  launch_cat(output, tensors, dim);
  return output;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("index_select.out", TORCH_FN(index_select_out));
  m.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
  m.impl("cat", TORCH_FN(cat));
  m.impl("cat.out", TORCH_FN(cat_out));
}

}  // namespace loom::ops
