// SPDX-License-Identifier: BSD-3-Clause
// lstm.input is composite in PyTorch: a product and a fused cell for each step. On loom the common
// form of it is one command per layer and direction; every other form stays the composite.
#include "loom/ops/recurrent/lstm_formula.h"
#include "loom/ops/recurrent/lstm_layer.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <array>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace loom::ops {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
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
         !tensor.is_nested() && tensor.scalar_type() == at::kFloat && tensor.is_privateuseone() &&
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

class LstmLayerBackward final : public Node {
 public:
  /// The order of a layer's tensors wherever they are listed.
  enum { kInput, kHidden, kCell, kInputWeight, kHiddenWeight, kInputBias, kHiddenBias, kCount };

  LstmLayerBackward(const LstmLayer& layer, const LstmResult& kept) : reverse_(layer.reverse) {
    const std::array<const at::Tensor*, kCount> tensors = {
        &layer.input,         &layer.hidden,     &layer.cell,       &layer.input_weight,
        &layer.hidden_weight, &layer.input_bias, &layer.hidden_bias};
    for (const at::Tensor* tensor : tensors) saved_.emplace_back(*tensor, /*is_output=*/false);
    saved_.emplace_back(kept.gates, /*is_output=*/false);
    saved_.emplace_back(kept.cells, /*is_output=*/false);
  }

  /// Makes `node` the origin of the results that are seen outside.
  static void attach(const c10::intrusive_ptr<LstmLayerBackward>& node, const LstmResult& result) {
    torch::autograd::set_history(result.output, node);
    torch::autograd::set_history(result.hidden, node);
    torch::autograd::set_history(result.cell, node);
    node->output_ = SavedVariable(result.output, /*is_output=*/true);
  }

  std::string name() const override { return "LstmLayerBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& saved : saved_) saved.reset_data();
    output_.reset_data();
  }

  // torch.compile of a backward pass: collects what the node holds, and runs it with stand-ins.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(saved_, /*is_output=*/false);
    args.collect(output_, /*is_output=*/true);
    args.collect(reverse_);
  }
  variable_list apply_with_saved(const variable_list& inputs,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    saved.before(saved_);
    saved.before(output_);
    variable_list results = apply(variable_list(inputs));
    saved.after(saved_);
    saved.after(output_);
    return results;
  }

 private:
  variable_list apply(variable_list&& grads) override {
    // Two threads may run backward through one graph, as in PyTorch's own nodes.
    const std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(kCount);
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) return results;
    const LstmLayer layer{saved_[kInput].unpack(),        saved_[kHidden].unpack(),
                          saved_[kCell].unpack(),         saved_[kInputWeight].unpack(),
                          saved_[kHiddenWeight].unpack(), saved_[kInputBias].unpack(),
                          saved_[kHiddenBias].unpack(),   reverse_};
    bool by_formula = at::GradMode::is_enabled() || is_watched(layer.input);
    for (const at::Tensor& grad : grads) by_formula = by_formula || is_watched(grad);
    if (by_formula) {
      auto found = lstm_layer_gradient_formula(layer, grads[0], grads[1], grads[2]);
      for (int i = 0; i < kInputBias; ++i) results[i] = std::move(found[i]);
      if (layer.input_bias.defined())
        results[kInputBias] = results[kHiddenBias] = found[kInputBias];
      return results;
    }
    const LstmResult kept{output_.unpack(c10::intrusive_ptr<Node>::reclaim_copy(this)),
                          {},
                          {},
                          saved_[kCount].unpack(),
                          saved_[kCount + 1].unpack()};
    const bool bias = layer.input_bias.defined() && (task_should_compute_output(kInputBias) ||
                                                     task_should_compute_output(kHiddenBias));
    const LstmGradient found = lstm_layer_backward(
        layer, kept, grads[0], grads[1], grads[2],
        {task_should_compute_output(kInput), task_should_compute_output(kHidden),
         task_should_compute_output(kInputWeight), task_should_compute_output(kHiddenWeight),
         bias});
    return {found.input,         found.hidden, found.cell, found.input_weight,
            found.hidden_weight, found.bias,   found.bias};
  }

  // The layer's tensors, then the gates and the cells.
  std::vector<SavedVariable> saved_;
  SavedVariable output_;
  const bool reverse_;
};

LstmResult run_layer(const LstmLayer& layer, bool records) {
  const bool needs_gradient =
      records && torch::autograd::compute_requires_grad(layer.input, layer.hidden, layer.cell,
                                                        layer.input_weight, layer.hidden_weight,
                                                        layer.input_bias, layer.hidden_bias);
  const LstmResult result = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return lstm_layer(layer, needs_gradient);
  }();
  if (needs_gradient) {
    const auto node = c10::make_intrusive<LstmLayerBackward>(layer, result);
    node->set_next_edges(torch::autograd::collect_next_edges(
        layer.input, layer.hidden, layer.cell, layer.input_weight, layer.hidden_weight,
        layer.input_bias, layer.hidden_bias));
    LstmLayerBackward::attach(node, result);
  }
  return result;
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
