// SPDX-License-Identifier: BSD-3-Clause
// Indexing with tensors. Masks become indices, for which the host waits, since their number depends
// on data; indices on the host are moved to the device, as on every accelerator. Then the operator
// can be deferred like any other.
#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/tensor_lists.h"
#include "loom/ops/recipes/indexed/tensor_indices.h"

#include <ATen/DimVector.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/IndexingUtils.h>
#include <torch/library.h>

#include <optional>
#include <vector>

namespace loom::ops {
namespace {

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte;
}

/// Throws PyTorch's message for an index on another device than the host and that of `self`.
void check_index_devices(const at::Tensor& self,
                         const c10::List<std::optional<at::Tensor>>& indices) {
  for (const std::optional<at::Tensor>& index : indices) {
    TORCH_CHECK(!index || !index->defined() || index->is_cpu() || index->device() == self.device(),
                "indices should be either on ", c10::kCPU,
                " or on the same device as the indexed tensor (", self.device(), ")");
  }
}

at::Tensor on_device(const at::Tensor& index, c10::Device device) {
  return index.device() == device ? index : index.to(device, /*non_blocking=*/true);
}

/// The indices of `self`, with none that is a mask or elsewhere.
c10::List<std::optional<at::Tensor>> plain_indices(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  c10::List<std::optional<at::Tensor>> moved;
  bool masked = false;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index || !index->defined()) {
      moved.push_back(index);
      continue;
    }
    masked = masked || is_mask(*index);
    moved.push_back(on_device(*index, self.device()));
  }
  if (!masked) return moved;
  c10::List<std::optional<at::Tensor>> plain;
  for (at::Tensor& index : at::native::expandTensors(self, moved)) {
    plain.push_back(index.defined() ? std::optional(std::move(index)) : std::nullopt);
  }
  return plain;
}

/// If the indices are one mask and nothing else, the mask with dimensions of `self` after it.
std::optional<at::Tensor> single_mask(const at::Tensor& self,
                                      const c10::List<std::optional<at::Tensor>>& indices) {
  std::optional<at::Tensor> mask;
  std::int64_t dim = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index || !index->defined()) {
      if (!mask) ++dim;
      continue;
    }
    if (mask || index->scalar_type() != c10::kBool) return std::nullopt;
    mask = *index;
  }
  if (!mask || dim + mask->dim() > self.dim()) return std::nullopt;
  for (std::int64_t d = 0; d < mask->dim(); ++d) {
    if (mask->size(d) != self.size(dim + d)) return std::nullopt;
  }
  at::DimVector sizes(mask->sizes().begin(), mask->sizes().end());
  sizes.resize(static_cast<std::size_t>(self.dim() - dim), 1);
  return mask->reshape(sizes);
}

/// The sizes that tensors broadcast to; nothing if they do not.
std::optional<at::DimVector> broadcast(const std::vector<at::Tensor>& tensors) {
  at::DimVector sizes;
  for (const at::Tensor& tensor : tensors) {
    if (at::is_expandable_to(tensor.sizes(), sizes)) continue;
    if (!at::are_expandable(tensor.sizes(), sizes)) return std::nullopt;
    sizes = at::infer_size_dimvector(tensor.sizes(), sizes);
  }
  return sizes;
}

/// The sizes of what indices without masks select; nothing if the CPU operator has to say what is
/// wrong with them.
std::optional<at::DimVector> selected_sizes(const at::Tensor& self,
                                            const c10::List<std::optional<at::Tensor>>& indices) {
  if (static_cast<std::int64_t>(indices.size()) > self.dim()) return std::nullopt;
  std::vector<at::Tensor> given;
  at::DimVector before, after;
  bool together = true;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    const at::Tensor index =
        i < indices.size() ? indices.get(i).value_or(at::Tensor()) : at::Tensor();
    if (!index.defined()) {
      (given.empty() ? before : after).push_back(self.size(d));
      continue;
    }
    if (self.size(d) == 0 && index.numel() > 0) return std::nullopt;
    together = together && after.empty();
    given.push_back(index);
  }
  auto sizes = broadcast(given);
  if (!sizes) return std::nullopt;
  // Indices that are apart come first.
  at::DimVector selected = together ? before : *sizes;
  const at::DimVector& second = together ? *sizes : before;
  selected.append(second.begin(), second.end());
  selected.append(after.begin(), after.end());
  return selected;
}

void check_output(const at::Tensor& self, const at::Tensor& output) {
  if (output.device() == self.device()) return;
  c10::impl::common_device_check_failure(self.device(), output, "index", "out");
}

void replace(torch::jit::Stack* stack, std::size_t arguments, at::Tensor result) {
  torch::jit::drop(*stack, arguments);
  stack->emplace_back(std::move(result));
}

// (self, indices, ...)
void index(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  const at::Tensor self = (*stack)[first].toTensor();
  check_index_devices(self, optional_tensors((*stack)[first + 1]));
  if (arguments.back().is_out()) check_output(self, stack->back().toTensor());
  if (self.is_privateuseone()) {
    const auto plain = plain_indices(self, optional_tensors((*stack)[first + 1]));
    (*stack)[first + 1] = plain;
    const auto selected = selected_sizes(self, plain);
    const bool puts = arguments.size() > 2 && arguments[2].name() == "values";
    if (!selected ||
        (puts && !at::is_expandable_to((*stack)[first + 2].toTensor().sizes(), *selected))) {
      return fallback_on_host(op, stack);
    }
    if (puts) {
      const at::Tensor values = (*stack)[first + 2].toTensor();
      if (!write_by_indices(self, plain, values, (*stack)[first + 3].toBool(), *selected)) {
        return fallback(op, stack);
      }
      return replace(stack, arguments.size(), self);
    }
    if (!arguments.back().is_out()) {
      if (auto read = read_by_indices(self, plain, *selected)) {
        return replace(stack, arguments.size(), std::move(*read));
      }
    }
  }
  fallback(op, stack);
}

// Indices may be on the host, values only if they are a number.
void check_values(const at::Tensor& self, const at::Tensor& values, bool accumulate) {
  if (!self.is_privateuseone() || values.device() == self.device()) return;
  if (values.is_cpu() && values.dim() == 0) return;
  TORCH_CHECK(!accumulate, "expected device ", self.device(), " but got device ", values.device(),
              " for value tensor");
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", values.device(), "!");
}

// (self, indices, values, accumulate, ...)
void index_put(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor self = (*stack)[first].toTensor();
  const at::Tensor values = (*stack)[first + 2].toTensor();
  const bool accumulate = (*stack)[first + 3].toBool();
  const auto indices = optional_tensors((*stack)[first + 1]);
  check_index_devices(self, indices);
  check_values(self, values, accumulate);
  // self[mask] = value waits for nothing.
  if (self.is_privateuseone() && !accumulate && values.numel() == 1) {
    if (const auto mask = single_mask(self, indices)) {
      at::Tensor written = self;
      written.masked_fill_(on_device(*mask, self.device()), values.reshape({}));
      return replace(stack, op.schema().arguments().size(), std::move(written));
    }
  }
  index(op, stack);
}

// (self, mask, source). What sizes and dtypes forbid the CPU operator says, at the call.
void masked_scatter(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& mask = arguments[1].toTensor();
  const bool fits = at::is_expandable_to(mask.sizes(), self.sizes()) &&
                    mask.scalar_type() == c10::kBool &&
                    arguments[2].toTensor().scalar_type() == self.scalar_type();
  fits || mask.device() != self.device() ? fallback(op, stack) : fallback_on_host(op, stack);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"index.Tensor", "index.Tensor_out"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&index>());
  }
  m.impl("masked_scatter_", torch::CppFunction::makeFromBoxedFunction<&masked_scatter>());
  m.impl("_index_put_impl_", torch::CppFunction::makeFromBoxedFunction<&index_put>());
}

}  // namespace loom::ops
