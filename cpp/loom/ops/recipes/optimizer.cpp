// SPDX-License-Identifier: BSD-3-Clause
// Fused optimiser steps: one command updates all parameters, in blocks of elements.
#include "loom/backend/registration.h"
#include "loom/kernels/optim/adam.h"
#include "loom/ops/launch/launch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adam_native.h>
#include <ATen/ops/_fused_adamw_native.h>
#include <ATen/ops/_fused_sgd_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace loom::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Refs = std::vector<TensorRef>;

// Of a parameter: aliases of five parts, 1 us, must disappear beside the work, 60 us.
constexpr std::int64_t kBlockElements = 1 << 16;

Refs refs(const char* name, c10::Device device, at::TensorList tensors, bool writes) {
  Refs list;
  list.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    check_operand_device(name, device, tensor);
    list.emplace_back(tensor, writes);
  }
  return list;
}

TensorRef ref(const char* name, c10::Device device, const OptionalTensor& tensor) {
  if (!tensor || !tensor->defined()) return {};
  check_operand_device(name, device, *tensor);
  return TensorRef(*tensor);
}

OptionalTensor optional_alias(const TensorRef& tensor) {
  return tensor.defined() ? OptionalTensor(tensor.alias()) : std::nullopt;
}

/// True if both are laid out alike: strides of sizes of 1 do not count.
bool same_layout(const TensorRef& a, const TensorRef& b) {
  if (a.sizes() != b.sizes()) return false;
  for (std::size_t d = 0; d < a.sizes().size(); ++d) {
    if (a.sizes()[d] != 1 && a.strides()[d] != b.strides()[d]) return false;
  }
  return true;
}

/// Elements of one parameter, in memory order.
struct Piece {
  std::size_t parameter;
  std::int64_t begin, length;
};

/// kLists lists of one tensor a parameter, all laid out alike (the kernels ask for that), and what
/// one step of all of them is: `Kernel` has apply(lists of one, scalars of this step).
template <std::size_t kLists, class Kernel>
struct Step {
  std::array<Refs, kLists> lists;  // parameters first, then gradients
  Refs counts;                     // of steps, one a parameter, or none
  TensorRef learning_rate, grad_scale, found_inf;
  Kernel kernel;

  void operator()() {
    Queue& queue = *Queue::current();
    Grid grid(queue.cores(), queue.id().priority);
    const std::vector<Piece> pieces = cut();
    const auto count = static_cast<std::int64_t>(pieces.size());
    const double rate = learning_rate.defined() ? learning_rate.alias().template item<double>()
                                                : kernel.learning_rate;
    if constexpr (requires { typename Kernel::Update; }) {
      if (is_plain()) {
        std::vector<typename Kernel::Update> updates;
        for (std::size_t i = 0; i < lists[0].size(); ++i) {
          updates.push_back(kernel.update_of(lists, i, counts[i].alias().item().toDouble(), rate));
        }
        grid.run_by_any(count, [&](std::int64_t index) {
          const Piece& piece = pieces[static_cast<std::size_t>(index)];
          kernel.run(updates[piece.parameter], piece.begin, piece.length);
        });
        return;
      }
    }
    grid.run(count,
             [&](std::int64_t index) { update(pieces[static_cast<std::size_t>(index)], rate); });
  }
  void accesses(AccessList& list) const {
    for (std::size_t i = 0; i < kLists; ++i) {
      // Gradients are unscaled in place.
      const bool writes = i != 1 || grad_scale.defined();
      const AccessKind kind = writes ? AccessKind::kUpdate : AccessKind::kRead;
      for (const TensorRef& tensor : lists[i]) tensor.append_access(list, kind);
    }
    for (const TensorRef& count : counts) count.append_access(list, AccessKind::kRead);
    for (const TensorRef* scalar : {&learning_rate, &grad_scale, &found_inf}) {
      scalar->append_access(list, AccessKind::kRead);
    }
  }

 private:
  [[nodiscard]] bool flat(std::size_t parameter) const {
    const TensorRef& first = lists[0][parameter];
    return first.is_dense() && std::all_of(lists.begin(), lists.end(), [&](const Refs& list) {
             return list.empty() || same_layout(list[parameter], first);
           });
  }
  /// True for what almost all steps are, which ATen's kernels do not run at the memory's speed.
  [[nodiscard]] bool is_plain() const {
    if (grad_scale.defined() || found_inf.defined() || !kernel.is_plain()) return false;
    for (std::size_t i = 0; i < lists[0].size(); ++i) {
      if (!flat(i)) return false;
      for (const Refs& list : lists) {
        if (list.empty()) continue;
        if (list[i].dtype() != c10::ScalarType::Float || list[i].neg()) return false;
      }
    }
    return true;
  }
  [[nodiscard]] std::vector<Piece> cut() const {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < lists[0].size(); ++i) {
      const std::int64_t elements = lists[0][i].numel();
      const std::int64_t block = flat(i) ? kBlockElements : elements;
      for (std::int64_t begin = 0; begin < elements; begin += block) {
        pieces.push_back({i, begin, std::min(block, elements - begin)});
      }
    }
    return pieces;
  }
  void update(const Piece& piece, double rate) const {
    std::array<std::vector<at::Tensor>, kLists> parts;
    for (std::size_t i = 0; i < kLists; ++i) {
      if (lists[i].empty()) continue;
      const TensorRef& whole = lists[i][piece.parameter];
      parts[i].push_back(piece.length == whole.numel()
                             ? whole.alias()
                             : whole.alias_flat(piece.begin, piece.length));
    }
    std::vector<at::Tensor> count;
    if (!counts.empty()) count.push_back(counts[piece.parameter].alias());
    kernel.apply(parts, count, rate, optional_alias(grad_scale), optional_alias(found_inf));
  }
};

struct AdamKernel {
  bool decoupled;  ///< weight decay as AdamW does
  double learning_rate, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize;

  void apply(const std::array<std::vector<at::Tensor>, 5>& lists,
             const std::vector<at::Tensor>& counts, double rate, const OptionalTensor& grad_scale,
             const OptionalTensor& found_inf) const {
    const auto step = [&](auto function) {
      function(lists[0], lists[1], lists[2], lists[3], lists[4], counts, rate, beta1, beta2,
               weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
    };
    using Function = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                          at::TensorList, at::TensorList, double, double, double, double, double,
                          bool, bool, const OptionalTensor&, const OptionalTensor&);
    if (decoupled) {
      step(static_cast<Function*>(at::native::_fused_adamw_kernel_cpu_));
    } else {
      step(static_cast<Function*>(at::native::_fused_adam_kernel_cpu_));
    }
  }

  using Update = kernels::optim::AdamUpdate;

  [[nodiscard]] bool is_plain() const noexcept { return !amsgrad; }
  [[nodiscard]] Update update_of(const std::array<Refs, 5>& lists, std::size_t parameter,
                                 double count, double rate) const {
    const auto data = [&](std::size_t list) {
      return reinterpret_cast<float*>(lists[list][parameter].data());
    };
    const auto number = [](double value) { return static_cast<float>(value); };
    const double correction = 1 - std::pow(beta1, count);
    return {.parameter = data(0),
            .gradient = data(1),
            .mean = data(2),
            .square = data(3),
            .beta1 = number(beta1),
            .beta2 = number(beta2),
            .eps = number(eps),
            .mean_weight = number(1 - beta1),
            .square_weight = number(1 - beta2),
            .step_size = number(rate / correction),
            .root_factor = number(1 / std::sqrt(1 - std::pow(beta2, count))),
            .decay = decoupled ? number(1 - rate * weight_decay) : 1,
            .gradient_decay = decoupled ? 0 : number(weight_decay),
            .maximize = maximize};
  }
  /// For some of the elements.
  static void run(Update update, std::int64_t begin, std::int64_t length) {
    update.parameter += begin;
    update.gradient += begin;
    update.mean += begin;
    update.square += begin;
    kernels::optim::adam(update, length);
  }
};

struct SgdKernel {
  double learning_rate, weight_decay, momentum, dampening;
  bool nesterov, maximize, is_first_step;

  void apply(const std::array<std::vector<at::Tensor>, 3>& lists, const std::vector<at::Tensor>&,
             double rate, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) const {
    at::native::_fused_sgd_kernel_cpu_(lists[0], lists[1], lists[2], weight_decay, momentum, rate,
                                       dampening, nesterov, maximize, is_first_step, grad_scale,
                                       found_inf);
  }
};

void check_lengths(const char* name, at::TensorList parameters,
                   std::initializer_list<at::TensorList> others) {
  for (const at::TensorList list : others) {
    TORCH_CHECK(list.size() == parameters.size(), name, ": expected lists of one length, got ",
                parameters.size(), " parameters and ", list.size());
  }
}

template <class Rate>
using RateArgument = std::conditional_t<std::is_same_v<Rate, double>, double, const Rate&>;

template <bool kDecoupled, class Rate>
void fused_adam(at::TensorList self, at::TensorList grads, at::TensorList exp_avgs,
                at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                at::TensorList state_steps, RateArgument<Rate> lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = kDecoupled ? "_fused_adamw_" : "_fused_adam_";
  if (self.empty()) return;
  check_lengths(kName, self, {grads, exp_avgs, exp_avg_sqs, state_steps});
  if (amsgrad) check_lengths(kName, self, {max_exp_avg_sqs});
  const c10::Device device = self[0].device();
  const auto list = [&](at::TensorList tensors, bool writes) {
    return refs(kName, device, tensors, writes);
  };
  Step<5, AdamKernel> step{
      {list(self, true), list(grads, grad_scale.has_value()), list(exp_avgs, true),
       list(exp_avg_sqs, true), amsgrad ? list(max_exp_avg_sqs, true) : Refs()},
      list(state_steps, false),
      {},
      ref(kName, device, grad_scale),
      ref(kName, device, found_inf),
      {kDecoupled, 0, beta1, beta2, weight_decay, eps, amsgrad, maximize}};
  if constexpr (std::is_same_v<Rate, double>) {
    step.kernel.learning_rate = lr;
  } else {
    step.learning_rate = ref(kName, device, lr);
  }
  current_queue(device.index()).submit(kName, std::move(step));
}

template <class Rate>
void fused_sgd(at::TensorList self, at::TensorList grads, at::TensorList momenta,
               double weight_decay, double momentum, RateArgument<Rate> lr, double dampening,
               bool nesterov, bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  constexpr const char* kName = "_fused_sgd_";
  if (self.empty()) return;
  check_lengths(kName, self, {grads});
  if (!momenta.empty()) check_lengths(kName, self, {momenta});
  const c10::Device device = self[0].device();
  const auto list = [&](at::TensorList tensors, bool writes) {
    return refs(kName, device, tensors, writes);
  };
  Step<3, SgdKernel> step{
      {list(self, true), list(grads, grad_scale.has_value()), list(momenta, true)},
      {},
      {},
      ref(kName, device, grad_scale),
      ref(kName, device, found_inf),
      {0, weight_decay, momentum, dampening, nesterov, maximize, is_first_step}};
  if constexpr (std::is_same_v<Rate, double>) {
    step.kernel.learning_rate = lr;
  } else {
    step.learning_rate = ref(kName, device, lr);
  }
  current_queue(device.index()).submit(kName, std::move(step));
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", (fused_adam<false, double>));
  m.impl("_fused_adam_.tensor_lr", (fused_adam<false, at::Tensor>));
  m.impl("_fused_adamw_", (fused_adam<true, double>));
  m.impl("_fused_adamw_.tensor_lr", (fused_adam<true, at::Tensor>));
  m.impl("_fused_sgd_", (fused_sgd<double>));
  m.impl("_fused_sgd_.tensor_lr", (fused_sgd<at::Tensor>));
}

}  // namespace loom::ops
