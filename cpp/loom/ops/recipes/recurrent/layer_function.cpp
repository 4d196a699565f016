// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/recurrent/layer_function.h"

#include "loom/ops/recipes/recurrent/formula.h"
#include "loom/ops/recipes/watched.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <optional>
#include <utility>
#include <vector>

namespace loom::ops::recurrent {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

/// Its saved tensors are the layer's own, in the order of its arguments, then what the result
/// keeps, and the output.
class RecurrentLayerFunction : public torch::autograd::Function<RecurrentLayerFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const at::Tensor& hidden, const at::Tensor& input_weight,
                               const at::Tensor& hidden_weight, const OptionalTensor& input_bias,
                               const OptionalTensor& hidden_bias, const OptionalTensor& cell,
                               Cell kind, const Walk& walk) {
    const Layer layer{.kind = kind,
                      .walk = walk,
                      .input = input,
                      .hidden = hidden,
                      .cell = cell.value_or(at::Tensor()),
                      .input_weight = input_weight,
                      .hidden_weight = hidden_weight,
                      .input_bias = input_bias.value_or(at::Tensor()),
                      .hidden_bias = hidden_bias.value_or(at::Tensor())};
    const LayerResult result = [&] {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      return run_layer(layer, /*keeps=*/true);
    }();
    context->set_materialize_grads(false);
    context->saved_data["kind"] = static_cast<std::int64_t>(kind);
    context->saved_data["reverse"] = walk.reverse;
    context->saved_data["steps"] = walk.steps.description();
    context->save_for_backward({input, hidden, input_weight, hidden_weight, layer.input_bias,
                                layer.hidden_bias, layer.cell, result.gates, result.kept,
                                result.output});
    variable_list results{result.output, result.hidden};
    if (kind == Cell::kLstm) results.push_back(result.cell);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto kind = static_cast<Cell>(context->saved_data["kind"].toInt());
    const variable_list saved = context->get_saved_variables();
    const Layer layer{
        .kind = kind,
        .walk = {Steps::described(context->saved_data["steps"].toIntVector()),
                 context->saved_data["reverse"].toBool()},
        .input = saved[0],
        .hidden = saved[1],
        .cell = saved[6],
        .input_weight = saved[2],
        .hidden_weight = saved[3],
        .input_bias = saved[4],
        .hidden_bias = saved[5],
    };
    bool by_formula = at::GradMode::is_enabled() || is_watched(layer.input), any = false;
    for (const at::Tensor& grad : grads) {
      by_formula = by_formula || is_watched(grad) || torch::autograd::isFwGradDefined(grad);
      any = any || grad.defined();
    }
    if (!any) return variable_list(kArguments);
    const at::Tensor cell_grad = kind == Cell::kLstm ? grads[2] : at::Tensor();
    LayerGradient found;
    if (by_formula) {
      found = layer_gradient_formula(layer, grads[0], grads[1], cell_grad);
    } else {
      LayerResult result;
      result.gates = saved[7];
      result.kept = saved[8];
      result.output = saved[9];
      const auto wants = [&](std::size_t index) { return context->needs_input_grad(index); };
      const bool biased = layer.input_bias.defined();
      found = run_layer_backward(layer, result, grads[0], grads[1], cell_grad,
                                 {.input = wants(0),
                                  .hidden = wants(1),
                                  .input_weight = wants(2),
                                  .hidden_weight = wants(3),
                                  .input_bias = biased && wants(4),
                                  .hidden_bias = biased && wants(5)});
    }
    return {found.input,         found.hidden,     found.input_weight,
            found.hidden_weight, found.input_bias, found.hidden_bias,
            found.cell,          at::Tensor(),     at::Tensor()};
  }

 private:
  static constexpr std::size_t kArguments = 9;
};

bool requires_grad(const Layer& layer) {
  return torch::autograd::compute_requires_grad(layer.input, layer.hidden, layer.cell,
                                                layer.input_weight, layer.hidden_weight,
                                                layer.input_bias, layer.hidden_bias);
}

}  // namespace

std::array<LayerResult, 2> call_both(const std::array<Layer, 2>& layers, bool records) {
  if (records && (requires_grad(layers[0]) || requires_grad(layers[1]))) {
    return {call_layer(layers[0], records), call_layer(layers[1], records)};
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return run_both(layers);
}

LayerResult call_layer(const Layer& layer, bool records) {
  if (!records || !requires_grad(layer)) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return run_layer(layer, /*keeps=*/false);
  }
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
  };
  const variable_list results = RecurrentLayerFunction::apply(
      layer.input, layer.hidden, layer.input_weight, layer.hidden_weight, given(layer.input_bias),
      given(layer.hidden_bias), given(layer.cell), layer.kind, layer.walk);
  LayerResult result;
  result.output = results[0];
  result.hidden = results[1];
  if (layer.kind == Cell::kLstm) result.cell = results[2];
  return result;
}

}  // namespace loom::ops::recurrent
