// SPDX-License-Identifier: BSD-3-Clause
// The fused cells that ATen's LSTM and GRU call on accelerators, and their gradients. ATen has no
// CPU kernels for them: those of an LSTM are the kernels of whole layers (kernels/recurrent/);
// others are made of CPU operators. Half types are computed in float32. Both are cut along the
// batch.
#include "loom/backend/registration.h"
#include "loom/kernels/recurrent/cell.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rnn_cell_formula.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <type_traits>

namespace loom::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using kernels::recurrent::Cell;
using kernels::recurrent::RowSpan;

// Activations and products of one gate's element.
constexpr double kGateCost = 3;

/// Operand i is cut along its batch if bit i of `batched` is set.
Along along_batch(const at::Tensor& gates, std::uint32_t batched) {
  Along along{.cost = kGateCost * static_cast<double>(gates.size(1))};
  for (std::size_t i = 0; i < along.dims.size(); ++i) {
    along.dims[i] = (batched >> i & 1) != 0 ? std::int8_t{0} : SlicePlan::kWhole;
  }
  return along;
}

void check_gates(const char* name, const at::Tensor& input, const at::Tensor& hidden,
                 const at::Tensor& state, std::int64_t count) {
  TORCH_CHECK(input.dim() == 2 && input.sizes() == hidden.sizes(), name,
              ": expected input and hidden gates of one 2-D shape, got ", input.sizes(), " and ",
              hidden.sizes());
  TORCH_CHECK(
      state.dim() == 2 && state.size(0) == input.size(0) && state.size(1) * count == input.size(1),
      name, ": expected a state of shape [", input.size(0), ", ", input.size(1) / count, "], got ",
      state.sizes());
}

/// The rows of a matrix of floats, none if it is undefined.
template <class T>
RowSpan<T> rows_of(const at::Tensor& matrix) {
  if (!matrix.defined()) return {};
  return {matrix.data_ptr<std::remove_const_t<T>>(), matrix.stride(0)};
}

/// True if they are floats whose rows are dense, or undefined.
bool are_dense_floats(std::initializer_list<at::Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.scalar_type() == at::kFloat && !tensor.is_neg() && tensor.stride(-1) == 1);
  });
}

bool is_half(const at::Tensor& tensor) { return c10::isReducedFloatingType(tensor.scalar_type()); }
at::Tensor wide(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kFloat) : tensor;
}
at::Tensor wide_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().dtype(at::kFloat));
}

// Gates: input, forget, cell, output. The workspace keeps them after their activations.
void lstm_kernel(const at::Tensor& to_hidden, const at::Tensor& to_cell,
                 const at::Tensor& workspace, const at::Tensor& input, const at::Tensor& hidden,
                 const at::Tensor& cell, const at::Tensor& input_bias,
                 const at::Tensor& hidden_bias) {
  if (is_half(to_hidden)) {
    const at::Tensor state = wide_like(to_hidden), kept = wide_like(to_cell);
    const at::Tensor gates = wide_like(workspace);
    lstm_kernel(state, kept, gates, wide(input), wide(hidden), wide(cell), wide(input_bias),
                wide(hidden_bias));
    to_hidden.copy_(state);
    to_cell.copy_(kept);
    workspace.copy_(gates);
    return;
  }
  if (input_bias.defined() == hidden_bias.defined() &&
      are_dense_floats(
          {to_hidden, to_cell, workspace, input, hidden, cell, input_bias, hidden_bias})) {
    const auto bias = [](const at::Tensor& each) {
      return each.defined() ? each.const_data_ptr<float>() : nullptr;
    };
    return kernels::recurrent::cell_step({.cell = Cell::kLstm,
                                          .rows = cell.size(0),
                                          .units = cell.size(1),
                                          .gate_stride = cell.size(1),
                                          .sums = rows_of<const float>(hidden),
                                          .sums_gate_stride = cell.size(1),
                                          .input_bias = bias(input_bias),
                                          .hidden_bias = bias(hidden_bias),
                                          .input = rows_of<const float>(input),
                                          .gates = rows_of<float>(workspace),
                                          .before = rows_of<const float>(cell),
                                          .kept = rows_of<float>(to_cell),
                                          .state = rows_of<float>(to_hidden)});
  }
  const auto [state, kept, gates] = lstm_cell_formula(input, hidden, cell, input_bias, hidden_bias);
  to_hidden.copy_(state);
  to_cell.copy_(kept);
  workspace.copy_(gates);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input,
                                                         const at::Tensor& hidden,
                                                         const at::Tensor& cell,
                                                         const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_lstm_cell", input, hidden, cell, 4);
  at::Tensor to_hidden = empty(cell.sizes(), cell.scalar_type(), cell.device());
  at::Tensor to_cell = empty(cell.sizes(), cell.scalar_type(), cell.device());
  at::Tensor workspace = empty(input.sizes(), input.scalar_type(), input.device());
  launch("_thnn_fused_lstm_cell", along_batch(input, 0b111111), lstm_kernel, out(to_hidden),
         out(to_cell), out(workspace), input, hidden, cell, input_bias, hidden_bias);
  return {to_hidden, to_cell, workspace};
}

void lstm_backward_kernel(const at::Tensor& to_gates, const at::Tensor& to_cell,
                          const at::Tensor& grad_hidden, const at::Tensor& grad_cell,
                          const at::Tensor& cell, const at::Tensor& new_cell,
                          const at::Tensor& workspace) {
  if (is_half(to_cell)) {
    const at::Tensor gates = wide_like(to_gates), carried = wide_like(to_cell);
    lstm_backward_kernel(gates, carried, wide(grad_hidden), wide(grad_cell), wide(cell),
                         wide(new_cell), wide(workspace));
    to_gates.copy_(gates);
    to_cell.copy_(carried);
    return;
  }
  if (are_dense_floats({to_gates, to_cell, grad_hidden, grad_cell, cell, new_cell, workspace})) {
    grad_cell.defined() ? to_cell.copy_(grad_cell) : to_cell.zero_();
    return kernels::recurrent::cell_gradient({.cell = Cell::kLstm,
                                              .rows = cell.size(0),
                                              .units = cell.size(1),
                                              .gate_stride = cell.size(1),
                                              .output_grad = rows_of<const float>(grad_hidden),
                                              .gates = rows_of<const float>(workspace),
                                              .before = rows_of<const float>(cell),
                                              .kept = rows_of<const float>(new_cell),
                                              .carried = rows_of<float>(to_cell),
                                              .input_grad = rows_of<float>(to_gates)});
  }
  const auto [gates, carried] =
      lstm_cell_gradient_formula(grad_hidden, grad_cell, cell, new_cell, workspace);
  to_gates.copy_(gates);
  to_cell.copy_(carried);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hidden, const OptionalTensor& grad_cell, const at::Tensor& cell,
    const at::Tensor& new_cell, const at::Tensor& workspace, bool has_bias) {
  const auto defined = [](const OptionalTensor& grad) { return grad && grad->defined(); };
  if (!defined(grad_hidden) && !defined(grad_cell)) return {};
  at::Tensor to_gates = empty(workspace.sizes(), workspace.scalar_type(), workspace.device());
  at::Tensor to_cell = empty(cell.sizes(), cell.scalar_type(), cell.device());
  launch("_thnn_fused_lstm_cell_backward", along_batch(workspace, 0b1111111), lstm_backward_kernel,
         out(to_gates), out(to_cell), grad_hidden, grad_cell, cell, new_cell, workspace);
  return {to_gates, to_cell, has_bias ? to_gates.sum(0) : at::Tensor()};
}

void gru_kernel(const at::Tensor& to_hidden, const at::Tensor& workspace, const at::Tensor& input,
                const at::Tensor& hidden, const at::Tensor& state, const at::Tensor& input_bias,
                const at::Tensor& hidden_bias) {
  if (is_half(to_hidden)) {
    const at::Tensor made = wide_like(to_hidden), kept = wide_like(workspace);
    gru_kernel(made, kept, wide(input), wide(hidden), wide(state), wide(input_bias),
               wide(hidden_bias));
    to_hidden.copy_(made);
    workspace.copy_(kept);
    return;
  }
  const auto [made, kept] = gru_cell_formula(input, hidden, state, input_bias, hidden_bias);
  to_hidden.copy_(made);
  workspace.copy_(kept);
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input, const at::Tensor& hidden,
                                            const at::Tensor& state,
                                            const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_gru_cell", input, hidden, state, 3);
  at::Tensor to_hidden = empty(state.sizes(), state.scalar_type(), state.device());
  at::Tensor workspace =
      empty({state.size(0), 5 * state.size(1)}, state.scalar_type(), state.device());
  launch("_thnn_fused_gru_cell", along_batch(input, 0b11111), gru_kernel, out(to_hidden),
         out(workspace), input, hidden, state, input_bias, hidden_bias);
  return {to_hidden, workspace};
}

void gru_backward_kernel(const at::Tensor& to_input, const at::Tensor& to_hidden,
                         const at::Tensor& to_state, const at::Tensor& grad,
                         const at::Tensor& workspace) {
  if (is_half(to_state)) {
    const at::Tensor input = wide_like(to_input), hidden = wide_like(to_hidden);
    const at::Tensor state = wide_like(to_state);
    gru_backward_kernel(input, hidden, state, wide(grad), wide(workspace));
    to_input.copy_(input);
    to_hidden.copy_(hidden);
    to_state.copy_(state);
    return;
  }
  const auto [input, hidden, state] = gru_cell_gradient_formula(grad, workspace);
  to_input.copy_(input);
  to_hidden.copy_(hidden);
  to_state.copy_(state);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  const std::int64_t size = workspace.size(1) / 5;
  const auto gates = [&](std::int64_t count) {
    return empty({workspace.size(0), count * size}, workspace.scalar_type(), workspace.device());
  };
  at::Tensor to_input = gates(3);
  at::Tensor to_hidden = gates(3);
  at::Tensor to_state = gates(1);
  launch("_thnn_fused_gru_cell_backward", along_batch(workspace, 0b11111), gru_backward_kernel,
         out(to_input), out(to_hidden), out(to_state), grad, workspace);
  if (!has_bias) return {to_input, to_hidden, to_state, at::Tensor(), at::Tensor()};
  return {to_input, to_hidden, to_state, to_input.sum(0), to_hidden.sum(0)};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace loom::ops
