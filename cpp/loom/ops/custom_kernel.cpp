// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/custom_kernel.h"

#include "loom/ops/launch/launch.h"

#include <c10/util/SmallVector.h>

namespace loom {
namespace {

struct StoredOperand {
  ops::TensorRef ref;
  AccessKind kind;
};

template <class Policy>
struct CustomCommand {
  Policy policy;
  detail::BlockKernel kernel;
  std::vector<StoredOperand> operands;

  void operator()() {
    Queue& queue = *Queue::current();
    ops::Grid grid(queue.cores(), queue.id().priority);
    c10::SmallVector<const ops::TensorRef*, ops::SlicePlan::kMaxOperands> refs;
    for (const StoredOperand& operand : operands) refs.push_back(&operand.ref);
    const ops::SlicePlan plan = policy.plan(ops::Operands(refs.data(), refs.size()));
    grid.run(
        plan.blocks(),
        [&](std::int64_t block) {
          c10::SmallVector<at::Tensor, ops::SlicePlan::kMaxOperands> parts;
          for (std::size_t i = 0; i < refs.size(); ++i) {
            parts.push_back(plan.slice(*refs[i], static_cast<int>(i), block * plan.block));
          }
          kernel({parts.data(), parts.size()});
        },
        plan.by);
  }

  void accesses(AccessList& list) const {
    for (const StoredOperand& operand : operands) operand.ref.append_access(list, operand.kind);
  }
};

AccessKind kind_of(Operand::Use use) noexcept {
  switch (use) {
    case Operand::Use::kUpdate:
      return AccessKind::kUpdate;
    case Operand::Use::kReplace:
      return AccessKind::kReplace;
    default:
      return AccessKind::kRead;
  }
}

ops::Whole policy_of(const char*, const Whole&, std::span<const Operand>) { return {}; }

ops::Pointwise policy_of(const char*, const Pointwise& split, std::span<const Operand>) {
  return {.cost = split.cost};
}

ops::Along policy_of(const char* name, const Along& split, std::span<const Operand> operands) {
  TORCH_CHECK(split.dims.size() == operands.size(), name,
              ": expected a dimension to cut along for each of ", operands.size(),
              " operands, got ", split.dims.size());
  ops::Along policy{.cost = split.cost};
  std::int64_t length = -1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    policy.dims[i] = split.dims[i];
    const at::Tensor& tensor = operands[i].tensor;
    if (split.dims[i] == Along::kWhole || !tensor.defined()) continue;
    TORCH_CHECK(split.dims[i] >= 0 && split.dims[i] < tensor.dim(), name, ": operand ", i, " has ",
                tensor.dim(), " dimensions and cannot be cut along ", int{split.dims[i]});
    if (length < 0) length = tensor.size(split.dims[i]);
    TORCH_CHECK(tensor.size(split.dims[i]) == length, name, ": expected ", length,
                " items along the dimension of operand ", i, " that is cut, got ",
                tensor.size(split.dims[i]));
  }
  return policy;
}

}  // namespace

void detail::launch(const char* name, const Split& split, std::span<const Operand> operands,
                    BlockKernel kernel) {
  const at::Tensor& first = operands.front().tensor;
  TORCH_CHECK(first.defined() && first.is_privateuseone(), name,
              ": expected a loom tensor as the first operand");
  TORCH_CHECK(operands.size() <= ops::SlicePlan::kMaxOperands, name, ": expected at most ",
              ops::SlicePlan::kMaxOperands, " operands, got ", operands.size());
  std::vector<StoredOperand> stored;
  stored.reserve(operands.size());
  for (const auto& [tensor, use] : operands) {
    ops::check_operand_device(name, first.device(), tensor);
    TORCH_CHECK(!tensor.defined() || tensor.layout() == c10::kStrided, name,
                ": expected strided operands, got one that is ", tensor.layout());
    const AccessKind kind = kind_of(use);
    stored.push_back({ops::TensorRef(tensor, /*writes=*/kind != AccessKind::kRead), kind});
  }
  std::visit(
      [&](const auto& given) {
        using Policy = decltype(policy_of(name, given, operands));
        current_queue(first.device().index())
            .submit(name, CustomCommand<Policy>{policy_of(name, given, operands), std::move(kernel),
                                                std::move(stored)});
      },
      split);
}

}  // namespace loom
