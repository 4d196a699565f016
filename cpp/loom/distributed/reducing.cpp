// SPDX-License-Identifier: BSD-3-Clause
// Operations of the whole group that reduce.
#include "loom/collectives/algorithms.h"
#include "loom/distributed/in_group.h"
#include "loom/distributed/process_group.h"
#include "loom/distributed/reductions.h"

#include <c10/util/Exception.h>

#include <optional>

namespace loom::distributed {
namespace {

using c10d::OpType;
using collectives::Combination;
using collectives::Source;
using collectives::Target;
using collectives::Transport;

std::int64_t count_of(const Source& memory, const Combination& how) {
  return static_cast<std::int64_t>(memory.bytes / collectives::size_of(how.element));
}

}  // namespace

ProcessGroupLccl::WorkPtr ProcessGroupLccl::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only("all_reduce", tensors);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  c10d::AllreduceCoalescedOptions all;
  static_cast<c10d::AllreduceOptions&>(all) = options;
  return allreduce_coalesced(tensors, all);
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Operands operands("all_reduce");
  struct Part {
    Target data;
    Combination how;
  };
  std::vector<Part> parts;
  for (const at::Tensor& tensor : tensors) {
    const Combination how = combination_of("all_reduce", options.reduceOp, tensor.scalar_type());
    operands.agree(tensor.scalar_type());
    operands.combine(how);
    parts.push_back({operands.update(as_elements(tensor)), how});
  }
  return launch({.name = "all_reduce",
                 .type = OpType::ALLREDUCE,
                 .same_bytes = true,
                 .timeout = options.timeout,
                 .outputs = tensors},
                operands, in_group([parts = std::move(parts)](Transport& transport) {
                  for (const auto& [data, how] : parts) {
                    collectives::all_reduce(transport, data.data, data.data,
                                            count_of({data.data, data.bytes}, how), how);
                  }
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("reduce", tensors);
  TORCH_CHECK_VALUE(options.rootRank >= 0 && options.rootRank < size_,
                    "reduce: expected a root in [0, ", size_, "), got ", options.rootRank);
  const int root = static_cast<int>(options.rootRank);
  const Combination how = combination_of("reduce", options.reduceOp, tensor.scalar_type());
  Operands operands("reduce");
  operands.agree(tensor.scalar_type());
  operands.agree_on_root(root);
  operands.combine(how);
  const at::Tensor elements = as_elements(tensor);
  Source from;
  Target to;
  if (rank_ == root) {
    to = operands.update(elements);
    from = {to.data, to.bytes};
  } else {
    from = operands.read(elements);
  }
  return launch({.name = "reduce",
                 .type = OpType::REDUCE,
                 .same_bytes = true,
                 .timeout = options.timeout,
                 .outputs = tensors},
                operands, in_group([from, to, how, root](Transport& transport) {
                  collectives::reduce(transport, from.data, to.data, count_of(from, how), how,
                                      root);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only("reduce_scatter", outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == static_cast<std::size_t>(size_),
                    "reduce_scatter: expected a tensor for each of ", size_, " ranks");
  const Combination how = combination_of("reduce_scatter", options.reduceOp, output.scalar_type());
  Operands operands("reduce_scatter");
  operands.agree(output.scalar_type());
  operands.combine(how);
  std::vector<Source> from;
  for (const at::Tensor& input : inputs[0]) {
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(),
                     "reduce_scatter: expected tensors of one dtype, got ", input.scalar_type(),
                     " and ", output.scalar_type());
    from.push_back(operands.read_in_order(as_elements(input)));
  }
  const auto own = static_cast<std::size_t>(rank_);
  TORCH_CHECK_VALUE(inputs[0][own].numel() == output.numel(),
                    "reduce_scatter: expected an input of the output's ", output.numel(),
                    " elements for this rank, got one of ", inputs[0][own].numel());
  const bool in_place = from[own].data == address_of(output);
  const Target to =
      operands.write_in_order(as_elements(output), in_place ? std::optional(own) : std::nullopt);
  return launch({.name = "reduce_scatter",
                 .type = OpType::REDUCE_SCATTER,
                 .timeout = options.timeout,
                 .outputs = outputs},
                operands, in_group([from, to, how](Transport& transport) {
                  collectives::reduce_scatter(transport, from, to.data, how);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter_tensor";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), kName,
                    ": expected as many outputs as inputs, ", "got ", outputs.size(), " and ",
                    inputs.size());
  Operands operands(kName);
  struct Part {
    std::vector<Source> from;
    Target to;
    Combination how;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor &input = inputs[i], &output = outputs[i];
    TORCH_CHECK_TYPE(input.scalar_type() == output.scalar_type(), kName,
                     ": expected tensors of one dtype, got ", input.scalar_type(), " and ",
                     output.scalar_type());
    TORCH_CHECK_VALUE(input.numel() == output.numel() * size_, kName,
                      ": input tensor must be the same size as output size times world size: ",
                      "expected ", output.numel() * size_, " elements, got ", input.numel());
    const Source whole = operands.read_in_order(as_elements(input));
    const std::size_t bytes = whole.bytes / static_cast<std::size_t>(size_);
    std::vector<Source> from;
    for (std::size_t begin = 0; from.size() < static_cast<std::size_t>(size_); begin += bytes) {
      from.push_back({static_cast<const std::byte*>(whole.data) + begin, bytes});
    }
    const bool in_place = from[static_cast<std::size_t>(rank_)].data == address_of(output);
    const Target to =
        operands.write_in_order(as_elements(output), in_place ? std::optional(i) : std::nullopt);
    const Combination how = combination_of(kName, options.reduceOp, output.scalar_type());
    operands.agree(output.scalar_type());
    operands.combine(how);
    parts.push_back({std::move(from), to, how});
  }
  return launch({.name = kName,
                 .type = OpType::_REDUCE_SCATTER_BASE,
                 .timeout = options.timeout,
                 .outputs = outputs},
                operands, in_group([parts = std::move(parts)](Transport& transport) {
                  for (const Part& part : parts) {
                    collectives::reduce_scatter(transport, part.from, part.to.data, part.how);
                  }
                }));
}

}  // namespace loom::distributed
