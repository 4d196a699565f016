// SPDX-License-Identifier: BSD-3-Clause
// Recurrent layers and cells are composite in PyTorch: a product and pointwise operators for each
// step. On loom the common form of them is one command per layer and direction; every other form
// stays the composite. So does the cell of a plain RNN: its two products, whose results fuse with
// what follows, are as fast.
#include "loom/backend/registration.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/recurrent/common_form.h"
#include "loom/ops/recipes/recurrent/layer_function.h"
#include "loom/ops/recipes/recurrent/lstm_bfloat16.h"
#include "loom/ops/recipes/watched.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_cell_native.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_cell_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace loom::ops {
namespace {

using namespace recurrent;

using OptionalTensor = std::optional<at::Tensor>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// A step or two are no reason to widen weights, or to pack them.
constexpr std::int64_t kFewestSteps = 4;

struct CallResult {
  at::Tensor output, hidden, cell;
};

/// All layers and directions of a call, with `dropout` between layers.
CallResult run_layers(const Call& call, const Steps& steps, double dropout, bool records) {
  const bool lstm = call.kind == Cell::kLstm;
  const std::vector<at::Tensor> hidden = call.states[0].unbind(0);
  const std::vector<at::Tensor> cell =
      lstm ? call.states[1].unbind(0) : std::vector<at::Tensor>(hidden.size());
  std::vector<at::Tensor> last_hidden, last_cell;
  const std::size_t directions = call.bidirectional ? 2 : 1, each = call.has_biases ? 4 : 2;
  at::Tensor sequence = call.batch_first ? call.input.transpose(0, 1) : call.input;
  for (std::size_t index = 0; index < hidden.size(); index += directions) {
    const auto layer = [&](std::size_t i) {
      const auto param = [&](std::size_t which) {
        return which < each ? call.params[i * each + which].contiguous() : at::Tensor();
      };
      Layer made;
      made.kind = call.kind;
      made.walk = {steps, /*reverse=*/i != index};
      made.input = sequence;
      made.hidden = hidden[i].contiguous();
      if (lstm) made.cell = cell[i].contiguous();
      made.input_weight = call.params[i * each];
      made.hidden_weight = param(1);
      made.input_bias = param(2);
      made.hidden_bias = param(3);
      return made;
    };
    std::vector<at::Tensor> outputs;
    const auto keep = [&](const LayerResult& result) {
      outputs.push_back(result.output);
      last_hidden.push_back(result.hidden);
      last_cell.push_back(result.cell);
    };
    if (call.bidirectional) {
      for (const LayerResult& result : call_both({layer(index), layer(index + 1)}, records)) {
        keep(result);
      }
    } else {
      keep(call_layer(layer(index), records));
    }
    sequence = call.bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (dropout != 0 && index + directions < hidden.size()) {
      sequence = at::dropout(sequence, dropout, /*train=*/true);
    }
  }
  return {call.batch_first ? sequence.transpose(0, 1) : sequence, at::stack(last_hidden, 0),
          lstm ? at::stack(last_cell, 0) : at::Tensor()};
}

struct NoAutocast : c10::impl::ExcludeDispatchKeyGuard {
  NoAutocast() : ExcludeDispatchKeyGuard(c10::DispatchKey::AutocastPrivateUse1) {}
};

bool is_autocast() { return at::autocast::is_autocast_enabled(at::kPrivateUse1); }

/// True if layers should be computed in float32 rather than in the half type `dtype`: cell and
/// state are more precise then, and the weights are widened once for all steps. Where the processor
/// multiplies bfloat16, steps with much to multiply are faster in bfloat16, and without gradients
/// those with more weights than caches keep, if they are to be widened.
bool is_faster_widened(const Call& call, c10::ScalarType dtype) {
  // Zen 4: with gradients the layer is 1.4 to 2.5 times as fast up to 34 million multiply-adds a
  // step, the composite from 50 million on.
  constexpr std::int64_t kMostWeights = 1 << 20, kMostProducts = 8 << 20,
                         kMostProductsOfGradients = 40 << 20;
  if (dtype == at::kHalf || !can_multiply<c10::BFloat16>()) return true;
  const bool gradients = at::GradMode::is_enabled();
  // Without gradients the composite of a plain RNN is two products a step and little else.
  if (kernels::recurrent::gate_count(call.kind) == 1 && !gradients) return false;
  const std::int64_t weights = call.params[1].numel();
  const std::int64_t rows = call.states[0].dim() == 3 ? call.states[0].size(1) : 1;
  if (gradients) return rows * weights <= kMostProductsOfGradients;
  const bool are_wide = call.params[1].scalar_type() == at::kFloat;
  return (are_wide || weights <= kMostWeights) && rows * weights <= kMostProducts;
}

/// True if `takes` accepts the input, all states and all parameters, and there are such.
template <class Takes>
bool all_operands(const Call& call, Takes takes) {
  return call.params.size() >= 2 && takes(call.input) && std::ranges::all_of(call.states, takes) &&
         std::ranges::all_of(call.params, takes);
}

/// A call with the operands of another one, in a dtype.
class Converted {
 public:
  Converted(const Call& call, c10::ScalarType dtype) : params_(convert(call.params, dtype)) {
    call_.emplace(Call{call.kind, call.input.to(dtype), call.batch_sizes,
                       convert(call.states, dtype), params_, call.has_biases, call.num_layers,
                       call.bidirectional, call.batch_first});
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

  [[nodiscard]] const Call& call() const noexcept { return *call_; }

 private:
  static std::vector<at::Tensor> convert(at::TensorList tensors, c10::ScalarType dtype) {
    std::vector<at::Tensor> made;
    for (const at::Tensor& tensor : tensors) made.push_back(tensor.to(dtype));
    return made;
  }

  std::vector<at::Tensor> params_;  // the call refers to them
  std::optional<Call> call_;
};

std::optional<CallResult> run_in_float32(const Call& call, double dropout, bool records,
                                         c10::ScalarType dtype) {
  const Converted wide(call, at::kFloat);
  const Steps steps = steps_of_common_form(wide.call());
  if (steps.count() < kFewestSteps) return {};
  CallResult result = run_layers(wide.call(), steps, dropout, records);
  for (at::Tensor* each : {&result.output, &result.hidden, &result.cell}) {
    if (each->defined()) *each = each->to(dtype);
  }
  return result;
}

/// Operands that all are of one half type.
std::optional<CallResult> run_widened(const Call& call, double dropout, bool records) {
  if (!call.input.defined() || !c10::isReducedFloatingType(call.input.scalar_type())) return {};
  const c10::ScalarType dtype = call.input.scalar_type();
  const auto is_alike = [&](const at::Tensor& tensor) {
    return tensor.defined() && !is_watched(tensor) && tensor.scalar_type() == dtype;
  };
  if (!all_operands(call, is_alike) || !is_faster_widened(call, dtype)) return {};
  return run_in_float32(call, dropout, records, dtype);
}

/// An LSTM of bfloat16 of which no gradient is wanted.
std::optional<CallResult> run_bfloat16(const Call& call, double dropout, bool records) {
  if (call.kind != Cell::kLstm || !can_run_bfloat16_layer()) return {};
  const Steps steps = steps_of_common_form(call, at::kBFloat16);
  if (steps.count() < kFewestSteps) return {};
  if (records && torch::autograd::compute_requires_grad(call.input, call.states[0], call.states[1],
                                                        call.params)) {
    return {};
  }
  Call own = call;
  own.states[1] = call.states[1].to(at::kFloat);
  CallResult result = run_layers(own, steps, dropout, records);
  result.cell = result.cell.to(at::kBFloat16);
  return result;
}

/// The half type to which autocast casts all operands, if that is on and can.
std::optional<c10::ScalarType> autocast_dtype(const Call& call) {
  const c10::ScalarType dtype = at::autocast::get_autocast_dtype(at::kPrivateUse1);
  const auto is_cast = [](const at::Tensor& tensor) {
    return tensor.defined() && !is_watched(tensor) &&
           (tensor.scalar_type() == at::kFloat || c10::isReducedFloatingType(tensor.scalar_type()));
  };
  if (!is_autocast() || !c10::isReducedFloatingType(dtype) || !all_operands(call, is_cast)) {
    return {};
  }
  return dtype;
}

/// Under autocast the composite casts its operands at each step. Its cells are on autocast's list,
/// so its results have autocast's dtype, as these have.
std::optional<CallResult> run_autocast(const Call& call, double dropout, bool records,
                                       c10::ScalarType dtype) {
  const std::int64_t steps = call.batch_sizes != nullptr ? call.batch_sizes->numel()
                             : call.input.dim() == 3     ? call.input.size(call.batch_first ? 1 : 0)
                                                         : 1;
  if (steps < kFewestSteps) return {};
  const bool wants_gradient = records && torch::autograd::compute_requires_grad(
                                             call.input, at::TensorList(call.states), call.params);
  const NoAutocast no_autocast;
  if (dtype == at::kBFloat16 && !wants_gradient && can_run_bfloat16_layer()) {
    const Converted narrow(call, dtype);
    if (auto result = run_bfloat16(narrow.call(), dropout, records)) return result;
  }
  if (!is_faster_widened(call, dtype)) return {};
  return run_in_float32(call, dropout, records, dtype);
}

/// What kernels of ours compute.
std::optional<CallResult> run_own(const Call& call, double dropout, bool records) {
  if (is_autocast()) {
    const auto dtype = autocast_dtype(call);
    return dtype ? run_autocast(call, dropout, records, *dtype) : std::nullopt;
  }
  const Steps steps = steps_of_common_form(call);
  if (steps.count() > 0) return run_layers(call, steps, dropout, records);
  if (auto result = run_bfloat16(call, dropout, records)) return result;
  return run_widened(call, dropout, records);
}

/// The composite of a kind of layer, for padded and for packed sequences.
template <Cell kCell>
auto composite(const auto&... arguments) {
  if constexpr (kCell == Cell::kLstm) return at::native::lstm(arguments...);
  if constexpr (kCell == Cell::kGru) return at::native::gru(arguments...);
  if constexpr (kCell == Cell::kTanh) return at::native::rnn_tanh(arguments...);
  if constexpr (kCell == Cell::kRelu) return at::native::rnn_relu(arguments...);
}

template <Cell kCell>
auto as_tuple(const CallResult& result) {
  if constexpr (kCell == Cell::kLstm) {
    return ThreeTensors(result.output, result.hidden, result.cell);
  } else {
    return TwoTensors(result.output, result.hidden);
  }
}

/// What has one state, and lists of states as an LSTM has them. Undefined ones are none of ours.
std::vector<at::Tensor> states_of(const at::Tensor& hidden) { return {hidden}; }
std::vector<at::Tensor> states_of(at::TensorList states) { return states.vec(); }
template <Cell kCell>
auto states_as_argument(const Call& call) {
  if constexpr (kCell == Cell::kLstm) {
    return at::TensorList(call.states);
  } else {
    return call.states[0];
  }
}

template <Cell kCell>
constexpr std::size_t kStates = kCell == Cell::kLstm ? 2 : 1;
template <Cell kCell>
using States = std::conditional_t<kCell == Cell::kLstm, at::TensorList, const at::Tensor&>;

/// `records`: called above autograd.
template <Cell kCell, bool kRecords>
auto padded(const at::Tensor& input, States<kCell> hx, at::TensorList params, bool has_biases,
            std::int64_t num_layers, double dropout, bool train, bool bidirectional,
            bool batch_first) {
  const Call call{kCell,      input,      nullptr,       states_of(hx), params,
                  has_biases, num_layers, bidirectional, batch_first};
  if (call.states.size() == kStates<kCell> && input.defined() && input.dim() == 3) {
    if (const auto result = run_own(call, train ? dropout : 0, kRecords)) {
      return as_tuple<kCell>(*result);
    }
    if (const auto dtype = autocast_dtype(call)) {
      const NoAutocast no_autocast;
      const Converted cast(call, *dtype);
      return composite<kCell>(cast.call().input, states_as_argument<kCell>(cast.call()),
                              cast.call().params, has_biases, num_layers, dropout, train,
                              bidirectional, batch_first);
    }
  }
  return composite<kCell>(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
                          batch_first);
}

template <Cell kCell, bool kRecords>
auto packed(const at::Tensor& data, const at::Tensor& batch_sizes, States<kCell> hx,
            at::TensorList params, bool has_biases, std::int64_t num_layers, double dropout,
            bool train, bool bidirectional) {
  const Call call{kCell,      data,       &batch_sizes,  states_of(hx),        params,
                  has_biases, num_layers, bidirectional, /*batch_first=*/false};
  if (call.states.size() == kStates<kCell>) {
    if (const auto result = run_own(call, train ? dropout : 0, kRecords)) {
      return as_tuple<kCell>(*result);
    }
    if (const auto dtype = autocast_dtype(call)) {
      const NoAutocast no_autocast;
      const Converted cast(call, *dtype);
      return composite<kCell>(cast.call().input, batch_sizes,
                              states_as_argument<kCell>(cast.call()), cast.call().params,
                              has_biases, num_layers, dropout, train, bidirectional);
    }
  }
  return composite<kCell>(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
                          bidirectional);
}

/// A single step, if it is of the common form.
std::optional<LayerResult> run_cell(Cell kind, const at::Tensor& input, at::TensorList states,
                                    const at::Tensor& input_weight, const at::Tensor& hidden_weight,
                                    const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias, bool records) {
  const bool biased = input_bias && input_bias->defined();
  if (biased != (hidden_bias && hidden_bias->defined())) return {};
  if (!input.defined() || input.dim() != 2 || is_autocast()) return {};
  std::vector<at::Tensor> params{input_weight, hidden_weight};
  if (biased) params.insert(params.end(), {*input_bias, *hidden_bias});
  Call call{kind, input, nullptr, {}, params, biased, 1, false, false};
  for (const at::Tensor& state : states) {
    if (!state.defined() || state.dim() != 2 || is_watched(state)) return {};
    call.states.push_back(state.unsqueeze(0));
  }
  const Steps steps = steps_of_common_form(call);
  if (steps.count() == 0) return {};
  Layer layer;
  layer.kind = kind;
  layer.walk = {steps, /*reverse=*/false};
  layer.input = input;
  layer.hidden = states[0].contiguous();
  if (kind == Cell::kLstm) layer.cell = states[1].contiguous();
  layer.input_weight = input_weight;
  layer.hidden_weight = hidden_weight.contiguous();
  if (biased) layer.input_bias = input_bias->contiguous();
  if (biased) layer.hidden_bias = hidden_bias->contiguous();
  return call_layer(layer, records);
}

template <bool kRecords>
TwoTensors lstm_cell(const at::Tensor& input, at::TensorList hx, const at::Tensor& input_weight,
                     const at::Tensor& hidden_weight, const OptionalTensor& input_bias,
                     const OptionalTensor& hidden_bias) {
  if (hx.size() == 2) {
    if (const auto result = run_cell(Cell::kLstm, input, hx, input_weight, hidden_weight,
                                     input_bias, hidden_bias, kRecords)) {
      return {result->output, result->cell};
    }
  }
  return at::native::lstm_cell(input, hx, input_weight, hidden_weight, input_bias, hidden_bias);
}

template <bool kRecords>
at::Tensor gru_cell(const at::Tensor& input, const at::Tensor& hx, const at::Tensor& input_weight,
                    const at::Tensor& hidden_weight, const OptionalTensor& input_bias,
                    const OptionalTensor& hidden_bias) {
  if (const auto result = run_cell(Cell::kGru, input, hx, input_weight, hidden_weight, input_bias,
                                   hidden_bias, kRecords)) {
    return result->output;
  }
  return at::native::gru_cell(input, hx, input_weight, hidden_weight, input_bias, hidden_bias);
}

template <bool kRecords>
void register_all(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN((padded<Cell::kLstm, kRecords>)));
  m.impl("lstm.data", TORCH_FN((packed<Cell::kLstm, kRecords>)));
  m.impl("gru.input", TORCH_FN((padded<Cell::kGru, kRecords>)));
  m.impl("gru.data", TORCH_FN((packed<Cell::kGru, kRecords>)));
  m.impl("rnn_tanh.input", TORCH_FN((padded<Cell::kTanh, kRecords>)));
  m.impl("rnn_tanh.data", TORCH_FN((packed<Cell::kTanh, kRecords>)));
  m.impl("rnn_relu.input", TORCH_FN((padded<Cell::kRelu, kRecords>)));
  m.impl("rnn_relu.data", TORCH_FN((packed<Cell::kRelu, kRecords>)));
  m.impl("lstm_cell", TORCH_FN(lstm_cell<kRecords>));
  m.impl("gru_cell", TORCH_FN(gru_cell<kRecords>));
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_all<true>(m); }
LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) { register_all<false>(m); }

}  // namespace loom::ops
