// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/common_form.h"

#include "loom/ops/recipes/watched.h"

#include <torch/csrc/autograd/functions/utils.h>

namespace loom::ops::recurrent {
namespace {

/// A tensor that the kernels read as it is.
bool is_plain(const at::Tensor& tensor, c10::Device device, c10::ScalarType dtype) {
  return tensor.defined() && !is_watched(tensor) && tensor.layout() == at::kStrided &&
         !tensor.is_nested() && !tensor.is_neg() && !tensor._is_zerotensor() &&
         tensor.scalar_type() == dtype && tensor.is_privateuseone() && tensor.device() == device &&
         !torch::autograd::isFwGradDefined(tensor);
}

/// None if the sizes are not those of a packed sequence of so many rows.
Steps packed_steps(const at::Tensor& batch_sizes, std::int64_t rows) {
  if (!batch_sizes.defined() || is_watched(batch_sizes) || !batch_sizes.is_cpu() ||
      batch_sizes.scalar_type() != at::kLong || batch_sizes.dim() != 1 ||
      !batch_sizes.is_contiguous() || batch_sizes.numel() == 0) {
    return {};
  }
  const auto* first = batch_sizes.const_data_ptr<std::int64_t>();
  const std::vector<std::int64_t> sizes(first, first + batch_sizes.numel());
  std::int64_t sum = 0, last = sizes.front();
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > last) return {};
    sum += last = size;
  }
  return sum == rows ? Steps(sizes) : Steps();
}

}  // namespace

Steps steps_of_common_form(const Call& call, c10::ScalarType dtype) {
  const at::Tensor& input = call.input;
  if (!input.defined() || is_watched(input) || !is_plain(input, input.device(), dtype)) return {};
  if (input.dim() != 3 && input.dim() != 2) return {};
  if (input.numel() == 0 || call.num_layers < 1) return {};
  if (!can_run_layer()) return {};
  Steps steps;
  if (call.batch_sizes != nullptr) {
    if (input.dim() != 2) return {};
    steps = packed_steps(*call.batch_sizes, input.size(0));
    if (steps.count() == 0) return {};
  } else if (input.dim() == 3) {
    const bool batch_first = call.batch_first;
    steps = Steps(input.size(batch_first ? 1 : 0), input.size(batch_first ? 0 : 1));
  } else {
    steps = Steps(1, input.size(0));
  }
  const std::int64_t directions = call.bidirectional ? 2 : 1;
  const std::size_t each = call.has_biases ? 4 : 2;
  const at::Tensor& first = call.states[0];
  if (!is_plain(first, input.device(), dtype) || first.dim() != 3 || first.numel() == 0) return {};
  const std::int64_t hidden = first.size(2), gates = kernels::recurrent::gate_count(call.kind);
  const std::array<std::int64_t, 3> state_sizes{call.num_layers * directions, steps.batch(),
                                                hidden};
  for (const at::Tensor& state : call.states) {
    if (!is_plain(state, input.device(), dtype) || state.sizes() != state_sizes) return {};
  }
  const auto count = static_cast<std::size_t>(call.num_layers * directions);
  if (call.params.size() != count * each) return {};
  for (std::size_t i = 0; i < call.params.size(); ++i) {
    const at::Tensor& param = call.params[i];
    if (!is_plain(param, input.device(), dtype)) return {};
    const bool is_first = i / each < static_cast<std::size_t>(directions);
    const std::array<std::int64_t, 2> sizes{gates * hidden, i % each == 1 ? hidden
                                                            : is_first    ? input.size(-1)
                                                                          : directions * hidden};
    const c10::IntArrayRef expected(sizes.data(), i % each < 2 ? 2 : 1);
    if (param.sizes() != expected) return {};
  }
  return steps;
}

}  // namespace loom::ops::recurrent
