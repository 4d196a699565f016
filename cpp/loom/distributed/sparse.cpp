// SPDX-License-Identifier: BSD-3-Clause
// Sums of sparse tensors.
#include "loom/backend/registration.h"
#include "loom/distributed/process_group.h"

#include <ATen/DimVector.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

namespace loom::distributed {

// How many elements a rank has depends on data, so the host waits; the sums are those of a sparse
// tensor that has all ranks' elements.
ProcessGroupLccl::WorkPtr ProcessGroupLccl::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& options) {
  at::Tensor& tensor = tensors.front();
  TORCH_CHECK_VALUE(options.reduceOp.op_ == c10d::ReduceOp::SUM,
                    "all_reduce: expected SUM of sparse tensors");
  const at::Tensor own = tensor.coalesce();
  at::Tensor indices = own.indices().contiguous(), values = own.values().contiguous();
  const auto count_options = at::TensorOptions().dtype(at::kLong);
  at::Tensor count = at::empty({1}, count_options), counts = at::empty({size_}, count_options);
  count.fill_(own._nnz());
  _allgather_base(counts, count, {.timeout = options.timeout})->wait();
  Tensors all_indices, all_values;
  for (int rank = 0; rank < size_; ++rank) {
    const std::int64_t size = counts.const_data_ptr<std::int64_t>()[rank];
    at::DimVector shape(values.sizes());
    shape[0] = size;
    all_indices.push_back(at::empty({indices.size(0), size}, indices.options()));
    all_values.push_back(at::empty(shape, values.options()));
  }
  TensorLists index_lists{all_indices}, value_lists{all_values};
  Tensors index_inputs{indices}, value_inputs{values};
  allgather(index_lists, index_inputs, {.timeout = options.timeout})->wait();
  WorkPtr work = allgather(value_lists, value_inputs, {.timeout = options.timeout});
  work->wait();
  const at::Tensor sum = at::_sparse_coo_tensor_unsafe(at::cat(index_lists[0], 1),
                                                       at::cat(value_lists[0], 0), tensor.sizes())
                             .coalesce();
  tensor.copy_(sum);
  return after_current(static_cast<const WorkLccl&>(*work), tensors);
}

namespace {

// c10d registers its operators for the sparse tensors of cpu and cuda only.
std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> all_reduce_sparse(
    at::TensorList tensors, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const c10::intrusive_ptr<c10d::ReduceOp>& reduction,
    const std::optional<at::Tensor>& /*sparse_indices*/, bool async_op, std::int64_t timeout) {
  std::vector<at::Tensor> all = tensors.vec();
  TORCH_CHECK_VALUE(all.size() == 1, "all_reduce: expected one sparse tensor, got ", all.size());
  c10d::AllreduceOptions options;
  options.reduceOp = *reduction;
  options.timeout = std::chrono::milliseconds(timeout);
  options.asyncOp = async_op;
  auto work = group->getBackend(c10::DeviceType::PrivateUse1)->allreduce(all, options);
  return {std::move(all), std::move(work)};
}

LOOM_LIBRARY_IMPL(c10d, SparsePrivateUse1, library) {
  library.impl("allreduce_", all_reduce_sparse);
}

}  // namespace
}  // namespace loom::distributed
