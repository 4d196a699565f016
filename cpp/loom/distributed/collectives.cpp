// SPDX-License-Identifier: BSD-3-Clause
// Operations of the whole group, apart from those that reduce.
#include "loom/collectives/algorithms.h"
#include "loom/distributed/in_group.h"
#include "loom/distributed/process_group.h"

#include <ATen/TensorUtils.h>
#include <c10/util/Exception.h>

#include <numeric>
#include <optional>

namespace loom::distributed {
namespace {

using c10d::OpType;
using collectives::Source;
using collectives::Target;
using collectives::Transport;

void check_count(const char* name, std::size_t got, int expected) {
  TORCH_CHECK_VALUE(got == static_cast<std::size_t>(expected), name,
                    ": expected a tensor for each ", "of ", expected, " ranks, got ", got);
}

void check_root(const char* name, int64_t root, int ranks) {
  TORCH_CHECK_VALUE(root >= 0 && root < ranks, name, ": expected a root in [0, ", ranks, "), got ",
                    root);
}

void check_dtype(const char* name, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), name,
                   ": expected tensors of one dtype, got ", a.scalar_type(), " and ",
                   b.scalar_type());
}

/// Where `rank`'s part of `whole` begins, which consists of equal parts.
const void* place_of(int rank, const at::Tensor& whole, std::size_t part_bytes) {
  return address_of(whole) + static_cast<std::size_t>(rank) * part_bytes;
}

std::vector<Source> read_all(Operands& operands, const std::vector<at::Tensor>& tensors) {
  std::vector<Source> sources;
  for (const at::Tensor& tensor : tensors) sources.push_back(operands.read_in_order(tensor));
  return sources;
}

/// `rank`'s own may be what is read as the own-th.
std::vector<Target> write_all(Operands& operands, const std::vector<at::Tensor>& tensors, int rank,
                              std::optional<std::size_t> own) {
  std::vector<Target> targets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool is_own = i == static_cast<std::size_t>(rank);
    targets.push_back(operands.write_in_order(tensors[i], is_own ? own : std::nullopt));
  }
  return targets;
}

/// `own` if the two begin at the same place: the operation may be in place then.
std::optional<std::size_t> own_if(const void* a, const at::Tensor& b, std::size_t own) {
  return a == address_of(b) ? std::optional(own) : std::nullopt;
}

/// One rank's parts of a tensor that is cut along its first dimension, in bytes; without sizes all
/// parts are equal.
std::vector<std::size_t> parts_of(const char* name, const at::Tensor& tensor,
                                  const std::vector<int64_t>& sizes, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  TORCH_CHECK_VALUE(tensor.dim() > 0, name,
                    ": expected a tensor with a dimension to cut, got none");
  if (sizes.empty()) {
    TORCH_CHECK_VALUE(tensor.size(0) % ranks == 0, name,
                      ": Tensor's dim 0 does not divide equally across group size: expected a ",
                      "multiple of ", ranks, ", got ", tensor.size(0));
    return std::vector<std::size_t>(count, tensor.nbytes() / count);
  }
  TORCH_CHECK_VALUE(sizes.size() == count, name,
                    ": Number of tensor splits not equal to group size: expected ", ranks, ", got ",
                    sizes.size());
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(size >= 0, name, ": expected split sizes from 0 on, got ", sizes);
  }
  const int64_t length = tensor.size(0);
  TORCH_CHECK_VALUE(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == length, name,
                    ": Split sizes doesn't match total dim 0 size: expected a sum of ", length,
                    ", got ", sizes);
  const std::size_t each = length == 0 ? 0 : tensor.nbytes() / static_cast<std::size_t>(length);
  std::vector<std::size_t> bytes;
  for (const int64_t size : sizes) bytes.push_back(static_cast<std::size_t>(size) * each);
  return bytes;
}

/// A piece for each rank of memory that holds all, in their order.
template <class Piece, class Memory>
std::vector<Piece> cut(const Memory& whole, const std::vector<std::size_t>& bytes) {
  std::vector<Piece> pieces;
  std::size_t begin = 0;
  for (const std::size_t size : bytes) {
    pieces.push_back(
        {const_cast<std::byte*>(static_cast<const std::byte*>(whole.data)) + begin, size});
    begin += size;
  }
  return pieces;
}

/// What a rank sends to itself is copied before anybody compares sizes.
void check_own(const char* name, const std::vector<Source>& from, const std::vector<Target>& to,
               int rank) {
  const std::size_t sent = from[static_cast<std::size_t>(rank)].bytes;
  const std::size_t got = to[static_cast<std::size_t>(rank)].bytes;
  TORCH_CHECK_VALUE(sent == got, name, ": expected as much from this rank as it sends to itself, ",
                    "which is ", sent, " bytes, got room for ", got);
}

std::vector<std::size_t> equal_parts(std::size_t bytes, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  return std::vector<std::size_t>(count, bytes / count);
}

}  // namespace

ProcessGroupLccl::WorkPtr ProcessGroupLccl::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("broadcast", tensors);
  check_root("broadcast", options.rootRank, size_);
  const int root = static_cast<int>(options.rootRank);
  Operands operands("broadcast");
  operands.agree(tensor.scalar_type());
  operands.agree_on_root(root);
  const Target data = rank_ == root ? operands.update(tensor) : operands.write(tensor);
  return launch({.name = "broadcast",
                 .type = OpType::BROADCAST,
                 .same_bytes = true,
                 .timeout = options.timeout,
                 .outputs = tensors},
                operands, in_group([data, root](Transport& transport) {
                  collectives::broadcast(transport, data, root);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only("all_gather", inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "all_gather: expected one list of tensors, got ",
                    outputs.size());
  check_count("all_gather", outputs[0].size(), size_);
  for (const at::Tensor& output : outputs[0]) check_dtype("all_gather", input, output);
  const at::Tensor& own = outputs[0][static_cast<std::size_t>(rank_)];
  TORCH_CHECK_VALUE(own.numel() == input.numel(), "all_gather: expected an output of the input's ",
                    input.numel(), " elements for this rank, got one of ", own.numel());
  Operands operands("all_gather");
  operands.agree(input.scalar_type());
  const Source from = operands.read_in_order(input);
  const std::vector<Target> to = write_all(operands, outputs[0], rank_, own_if(from.data, own, 0));
  return launch({.name = "all_gather",
                 .type = OpType::ALLGATHER,
                 .timeout = options.timeout,
                 .outputs = outputs[0]},
                operands, in_group([from, to](Transport& transport) {
                  collectives::all_gather(transport, from.data, to);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_into_tensor";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), kName,
                    ": expected as many outputs as inputs, ", "got ", outputs.size(), " and ",
                    inputs.size());
  Operands operands(kName);
  struct Pair {
    Source from;
    std::vector<Target> to;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_dtype(kName, inputs[i], outputs[i]);
    TORCH_CHECK_VALUE(
        outputs[i].numel() == inputs[i].numel() * size_, kName,
        ": output tensor size must be equal to world_size times input tensor size: ", "expected ",
        inputs[i].numel() * size_, " elements, got ", outputs[i].numel());
    operands.agree(inputs[i].scalar_type());
    const Source from = operands.read_in_order(inputs[i]);
    const bool in_place = from.data == place_of(rank_, outputs[i], from.bytes);
    const Target whole =
        operands.write_in_order(outputs[i], in_place ? std::optional(i) : std::nullopt);
    pairs.push_back({from, cut<Target>(whole, equal_parts(whole.bytes, size_))});
  }
  return launch({.name = kName,
                 .type = OpType::_ALLGATHER_BASE,
                 .timeout = options.timeout,
                 .outputs = outputs},
                operands, in_group([pairs = std::move(pairs)](Transport& transport) {
                  for (const Pair& pair : pairs) {
                    collectives::all_gather(transport, pair.from.data, pair.to);
                  }
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_coalesced";
  check_count(kName, outputs.size(), size_);
  Operands operands(kName);
  struct Set {
    Source from;
    std::vector<Target> to;
  };
  std::vector<Set> sets;
  Tensors flat;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_ranks;
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), kName, ": expected ", inputs.size(),
                        " outputs for each rank, got ", list.size());
      check_dtype(kName, inputs[i], list[i]);
      TORCH_CHECK_VALUE(list[i].numel() == inputs[i].numel(), kName, ": expected outputs of ",
                        inputs[i].numel(), " elements, got ", list[i].numel());
      of_ranks.push_back(list[i]);
    }
    operands.agree(inputs[i].scalar_type());
    const Source from = operands.read_in_order(inputs[i]);
    const at::Tensor& own = of_ranks[static_cast<std::size_t>(rank_)];
    sets.push_back({from, write_all(operands, of_ranks, rank_, own_if(from.data, own, i))});
    flat.insert(flat.end(), of_ranks.begin(), of_ranks.end());
  }
  return launch({.name = kName,
                 .type = OpType::ALLGATHER_COALESCED,
                 .timeout = options.timeout,
                 .outputs = flat},
                operands, in_group([sets = std::move(sets)](Transport& transport) {
                  for (const Set& set : sets) {
                    collectives::all_gather(transport, set.from.data, set.to);
                  }
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& options) {
  const at::Tensor& input = only("gather", inputs);
  check_root("gather", options.rootRank, size_);
  const int root = static_cast<int>(options.rootRank);
  TORCH_CHECK_VALUE(outputs.size() == (rank_ == root ? 1U : 0U),
                    "gather: requires one list of outputs on root and none elsewhere, got ",
                    outputs.size());
  Operands operands("gather");
  operands.agree(input.scalar_type());
  operands.agree_on_root(root);
  const Source from = operands.read_in_order(input);
  std::vector<Target> to;
  if (rank_ == root) {
    check_count("gather", outputs[0].size(), size_);
    for (const at::Tensor& output : outputs[0]) check_dtype("gather", input, output);
    const at::Tensor& own = outputs[0][static_cast<std::size_t>(root)];
    to = write_all(operands, outputs[0], root, own_if(from.data, own, 0));
    TORCH_CHECK_VALUE(to[static_cast<std::size_t>(root)].bytes == from.bytes,
                      "gather: expected an output of the input's ", input.numel(),
                      " elements for this rank");
  }
  return launch({.name = "gather",
                 .type = OpType::GATHER,
                 .timeout = options.timeout,
                 .outputs = rank_ == root ? outputs[0] : Tensors{}},
                operands, in_group([from, to, root](Transport& transport) {
                  collectives::gather(transport, from, to, root);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& options) {
  const at::Tensor& output = only("scatter", outputs);
  check_root("scatter", options.rootRank, size_);
  const int root = static_cast<int>(options.rootRank);
  TORCH_CHECK_VALUE(inputs.size() == (rank_ == root ? 1U : 0U),
                    "scatter: requires one list of inputs on root and none elsewhere, got ",
                    inputs.size());
  Operands operands("scatter");
  operands.agree(output.scalar_type());
  operands.agree_on_root(root);
  std::vector<Source> from;
  if (rank_ == root) {
    check_count("scatter", inputs[0].size(), size_);
    for (const at::Tensor& input : inputs[0]) check_dtype("scatter", output, input);
    from = read_all(operands, inputs[0]);
    TORCH_CHECK_VALUE(from[static_cast<std::size_t>(root)].bytes == output.nbytes(),
                      "scatter: expected an input of the output's ", output.numel(),
                      " elements for this rank");
  }
  const auto own = static_cast<std::size_t>(rank_);
  const Target to = operands.write_in_order(
      output, rank_ == root ? own_if(from[own].data, output, own) : std::nullopt);
  return launch(
      {.name = "scatter", .type = OpType::SCATTER, .timeout = options.timeout, .outputs = outputs},
      operands, in_group([from, to, root](Transport& transport) {
        collectives::scatter(transport, from, to, root);
      }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<int64_t>& output_sizes,
                                                          std::vector<int64_t>& input_sizes,
                                                          const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all_single";
  check_dtype(kName, input, output);
  const std::vector<std::size_t> sent = parts_of(kName, input, input_sizes, size_);
  const std::vector<std::size_t> got = parts_of(kName, output, output_sizes, size_);
  Operands operands(kName);
  operands.agree(input.scalar_type());
  const std::vector<Source> from = cut<Source>(operands.read_in_order(input), sent);
  const std::vector<Target> to = cut<Target>(operands.write_in_order(output), got);
  check_own(kName, from, to, rank_);
  return launch({.name = kName,
                 .type = OpType::ALLTOALL_BASE,
                 .timeout = options.timeout,
                 .outputs = {output}},
                operands, in_group([from, to](Transport& transport) {
                  collectives::all_to_all(transport, from, to);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& options) {
  check_count("all_to_all", inputs.size(), size_);
  check_count("all_to_all", outputs.size(), size_);
  Operands operands("all_to_all");
  const std::vector<Source> from = read_all(operands, inputs);
  const auto own = static_cast<std::size_t>(rank_);
  const std::vector<Target> to =
      write_all(operands, outputs, rank_, own_if(from[own].data, outputs[own], own));
  check_own("all_to_all", from, to, rank_);
  return launch({.name = "all_to_all",
                 .type = OpType::ALLTOALL,
                 .timeout = options.timeout,
                 .outputs = outputs},
                operands, in_group([from, to](Transport& transport) {
                  collectives::all_to_all(transport, from, to);
                }));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::barrier(const c10d::BarrierOptions& options) {
  return launch({.name = "barrier", .type = OpType::BARRIER, .timeout = options.timeout},
                Operands("barrier"),
                in_group([](Transport& transport) { collectives::barrier(transport); }));
}

// Every operation here says which rank it has waited for, a barrier too.
void ProcessGroupLccl::monitoredBarrier(const c10d::BarrierOptions& options,
                                        bool /*wait_all_ranks*/) {
  barrier(options)->wait();
}

}  // namespace loom::distributed
