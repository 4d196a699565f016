// SPDX-License-Identifier: BSD-3-Clause
// lstm.input is composite in PyTorch: a product and a fused cell for each step. On loom the common
// form of it is one command per layer and direction; every other form stays the composite.
#include "loom/ops/recipes/recurrent/lstm_formula.h"
#include "loom/ops/recipes/recurrent/lstm_layer.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace loom::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// True for tensors of Python classes, inside torch.func, and under modes that see operators.
bool is_watched(const at::Tensor& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kWrappers({DispatchKey::Python, DispatchKey::FuncTorchBatched,
                                           DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched,
                                           DispatchKey::Functionalize});
  if (tensor.defined() && tensor.key_set().has_any(kWrappers)) return true;
  for (const DispatchKey key :
       {DispatchKey::Python, DispatchKey::FuncTorchDynamicLayerFrontMode,
        DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::Functionalize}) {
    if (c10::impl::tls_is_dispatch_key_included(key)) return true;
  }
  return false;
}

/// A tensor that the kernels read as it is, of the given sizes.
bool is_plain(const at::Tensor& tensor, const at::Tensor& input, c10::IntArrayRef sizes) {
  return tensor.defined() && !is_watched(tensor) && tensor.layout() == at::kStrided &&
         !tensor.is_nested() && !tensor.is_neg() && !tensor._is_zerotensor() &&
         tensor.scalar_type() == at::kFloat && tensor.is_privateuseone() &&
         tensor.device() == input.device() && tensor.sizes() == sizes &&
         !torch::autograd::isFwGradDefined(tensor);
}

bool is_common_form(const at::Tensor& input, at::TensorList hx, at::TensorList params,
                    bool has_biases, std::int64_t num_layers, bool bidirectional,
                    bool batch_first) {
  if (!input.defined() || is_watched(input) || input.dim() != 3 || hx.size() != 2) return false;
  if (!is_plain(input, input, input.sizes()) || input.numel() == 0 || num_layers < 1) return false;
  if (at::autocast::is_autocast_enabled(at::kPrivateUse1) || !can_run_lstm_layer()) return false;
  if (!hx[0].defined() || is_watched(hx[0]) || hx[0].dim() != 3 || hx[0].numel() == 0) return false;
  const std::int64_t directions = bidirectional ? 2 : 1;
  const std::int64_t batch = input.size(batch_first ? 0 : 1);
  const std::int64_t hidden = hx[0].size(2);
  const std::int64_t each = has_biases ? 4 : 2;
  for (const at::Tensor& state : hx) {
    if (!is_plain(state, input, {num_layers * directions, batch, hidden})) return false;
  }
  if (static_cast<std::int64_t>(params.size()) != num_layers * directions * each) return false;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const std::int64_t features =
        index / (directions * each) == 0 ? input.size(2) : directions * hidden;
    const bool plain = index % each == 0   ? is_plain(params[i], input, {4 * hidden, features})
                       : index % each == 1 ? is_plain(params[i], input, {4 * hidden, hidden})
                                           : is_plain(params[i], input, {4 * hidden});
    if (!plain) return false;
  }
  return true;
}

/// A layer with its gradients. Its saved tensors are the layer's own, in the order of its
/// arguments, then the gates, the cells and the output.
class LstmLayerFunction : public torch::autograd::Function<LstmLayerFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const at::Tensor& hidden, const at::Tensor& cell,
                               const at::Tensor& input_weight, const at::Tensor& hidden_weight,
                               const std::optional<at::Tensor>& input_bias,
                               const std::optional<at::Tensor>& hidden_bias, bool reverse) {
    const LstmLayer layer{input,
                          hidden,
                          cell,
                          input_weight,
                          hidden_weight,
                          input_bias.value_or(at::Tensor()),
                          hidden_bias.value_or(at::Tensor()),
                          reverse};
    const LstmResult result = [&] {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      return lstm_layer(layer, /*keeps=*/true);
    }();
    context->set_materialize_grads(false);
    context->saved_data["reverse"] = reverse;
    context->save_for_backward({input, hidden, cell, input_weight, hidden_weight, layer.input_bias,
                                layer.hidden_bias, result.gates, result.cells, result.output});
    return {result.output, result.hidden, result.cell};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const bool reverse = context->saved_data["reverse"].toBool();
    const variable_list saved = context->get_saved_variables();
    const LstmLayer layer{saved[0], saved[1], saved[2], saved[3],
                          saved[4], saved[5], saved[6], reverse};
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) {
      return variable_list(kArguments);
    }
    bool by_formula = at::GradMode::is_enabled() || is_watched(layer.input);
    for (const at::Tensor& grad : grads) by_formula = by_formula || is_watched(grad);
    if (by_formula) {
      const auto found = lstm_layer_gradient_formula(layer, grads[0], grads[1], grads[2]);
      const at::Tensor bias = layer.input_bias.defined() ? found[5] : at::Tensor();
      return {found[0], found[1], found[2], found[3], found[4], bias, bias, at::Tensor()};
    }
    LstmResult kept;
    kept.gates = saved[7];
    kept.cells = saved[8];
    kept.output = saved[9];
    const auto wants = [&](std::size_t index) { return context->needs_input_grad(index); };
    const bool bias = layer.input_bias.defined() && (wants(5) || wants(6));
    const LstmGradient found = lstm_layer_backward(layer, kept, grads[0], grads[1], grads[2],
                                                   {wants(0), wants(1), wants(3), wants(4), bias});
    return {found.input,         found.hidden, found.cell, found.input_weight,
            found.hidden_weight, found.bias,   found.bias, at::Tensor()};
  }

 private:
  static constexpr std::size_t kArguments = 8;
};

LstmResult run_layer(const LstmLayer& layer, bool records) {
  if (records && torch::autograd::compute_requires_grad(layer.input, layer.hidden, layer.cell,
                                                        layer.input_weight, layer.hidden_weight,
                                                        layer.input_bias, layer.hidden_bias)) {
    const auto given = [](const at::Tensor& bias) {
      return bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
    };
    const variable_list results = LstmLayerFunction::apply(
        layer.input, layer.hidden, layer.cell, layer.input_weight, layer.hidden_weight,
        given(layer.input_bias), given(layer.hidden_bias), layer.reverse);
    LstmResult result;
    result.output = results[0];
    result.hidden = results[1];
    result.cell = results[2];
    return result;
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return lstm_layer(layer, /*keeps=*/false);
}

/// kRecords: called above autograd.
template <bool kRecords>
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input, at::TensorList hx,
                                                    at::TensorList params, bool has_biases,
                                                    std::int64_t num_layers, double dropout,
                                                    bool train, bool bidirectional,
                                                    bool batch_first) {
  if (!is_common_form(input, hx, params, has_biases, num_layers, bidirectional, batch_first)) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train,
                            bidirectional, batch_first);
  }
  const std::vector<at::Tensor> hidden = hx[0].unbind(0), cell = hx[1].unbind(0);
  std::vector<at::Tensor> last_hidden, last_cell;
  const std::size_t directions = bidirectional ? 2 : 1, each = has_biases ? 4 : 2;
  at::Tensor sequence = batch_first ? input.transpose(0, 1) : input;
  for (std::size_t index = 0; index < hidden.size(); index += directions) {
    std::vector<at::Tensor> outputs;
    for (std::size_t i = index; i < index + directions; ++i) {
      const auto param = [&](std::size_t which) { return params[i * each + which]; };
      const LstmResult result = run_layer({.input = sequence,
                                           .hidden = hidden[i].contiguous(),
                                           .cell = cell[i].contiguous(),
                                           .input_weight = param(0),
                                           .hidden_weight = param(1).contiguous(),
                                           .input_bias = has_biases ? param(2) : at::Tensor(),
                                           .hidden_bias = has_biases ? param(3) : at::Tensor(),
                                           .reverse = i != index},
                                          kRecords);
      outputs.push_back(result.output);
      last_hidden.push_back(result.hidden);
      last_cell.push_back(result.cell);
    }
    sequence = bidirectional ? at::cat(outputs, 2) : outputs[0];
    if (dropout != 0 && train && index + directions < hidden.size()) {
      sequence = at::dropout(sequence, dropout, /*train=*/true);
    }
  }
  return {batch_first ? sequence.transpose(0, 1) : sequence, at::stack(last_hidden, 0),
          at::stack(last_cell, 0)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", TORCH_FN(lstm<true>)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("lstm.input", TORCH_FN(lstm<false>)); }

}  // namespace loom::ops
