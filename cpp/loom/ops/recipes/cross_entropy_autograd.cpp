// SPDX-License-Identifier: BSD-3-Clause
// cross_entropy_loss is composite in PyTorch: it is log_softmax and nll_loss. On loom the common
// form of it is one operator with a gradient of its own; every other form stays the composite.
#include "loom/backend/registration.h"
#include "loom/ops/recipes/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/cross_entropy_loss_native.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <mutex>
#include <string>
#include <utility>

namespace loom::ops {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// True for tensors of Python classes (fake ones, distributed ones) and inside torch.func: what
/// looks at operators one by one knows those of the composite.
bool is_watched(const at::Tensor& self) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kWrappers(
      {DispatchKey::Python, DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper});
  return self.key_set().has_any(kWrappers) ||
         c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerBackMode);
}

/// Whether the one operator gives what the composite gives. Under autocast the composite computes
/// in float32, as the operator always does; otherwise in the logits' own dtype.
bool is_common_form(const at::Tensor& self, const at::Tensor& target,
                    const std::optional<at::Tensor>& weight, std::int64_t reduction,
                    double label_smoothing) {
  if (weight && weight->defined()) return false;
  if (label_smoothing != 0 || reduction < at::Reduction::None || reduction > at::Reduction::Sum) {
    return false;
  }
  if (self.dim() != 2 || target.dim() != 1 || target.scalar_type() != at::kLong) return false;
  if (!self.is_privateuseone() || self.device() != target.device()) return false;
  const auto dtype = self.scalar_type();
  const bool is_low = dtype == at::kBFloat16 || dtype == at::kHalf;
  const bool computes_in_float32 = is_low && at::autocast::is_autocast_enabled(at::kPrivateUse1);
  if (dtype != at::kFloat && dtype != at::kDouble && !computes_in_float32) return false;
  if (self.sym_size(0) != target.sym_size(0) || self.sym_numel() == 0) return false;
  return !torch::autograd::isFwGradDefined(self) && !is_watched(self) && !is_watched(target);
}

/// The node has two outputs: the loss, and the probabilities that only it sees. A gradient that is
/// differentiated is a function of these, so its derivative comes back as theirs.
class CrossEntropyLossBackward final : public Node {
 public:
  CrossEntropyLossBackward(const at::Tensor& target, const at::Tensor& total, c10::ScalarType dtype,
                           std::int64_t reduction, c10::SymInt ignore_index)
      : target_(target, /*is_output=*/false),
        total_(total, /*is_output=*/false),
        dtype_(dtype),
        reduction_(reduction),
        ignore_index_(std::move(ignore_index)) {}

  /// Makes `node` the origin of both results.
  static void attach(const c10::intrusive_ptr<CrossEntropyLossBackward>& node,
                     const at::Tensor& loss, const at::Tensor& softmax) {
    torch::autograd::set_history(loss, node);
    torch::autograd::set_history(softmax, node);
    node->softmax_ = SavedVariable(softmax, /*is_output=*/true);
  }

  std::string name() const override { return "CrossEntropyLossBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    target_.reset_data();
    total_.reset_data();
    softmax_.reset_data();
  }

  // torch.compile of a backward pass: collects what the node holds, and runs it with stand-ins.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(target_, /*is_output=*/false);
    args.collect(total_, /*is_output=*/false);
    args.collect(softmax_, /*is_output=*/true);
    args.collect(static_cast<std::int64_t>(dtype_));
    args.collect(reduction_);
    args.collect(ignore_index_);
  }
  variable_list apply_with_saved(const variable_list& inputs,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    saved.before(target_);
    saved.before(total_);
    saved.before(softmax_);
    saved.before(ignore_index_);
    variable_list results = apply(variable_list(inputs));
    saved.after(target_);
    saved.after(total_);
    saved.after(softmax_);
    saved.after(ignore_index_);
    return results;
  }

 private:
  variable_list apply(variable_list&& grads) override {
    // Two threads may run backward through one graph, as in PyTorch's own nodes.
    const std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(1);
    if (!task_should_compute_output(0)) return results;
    const at::Tensor softmax = softmax_.unpack(c10::intrusive_ptr<Node>::reclaim_copy(this));
    if (grads[0].defined()) results[0] = gradient(grads[0], softmax);
    if (grads[1].defined()) {
      const at::Tensor own =
          at::_softmax_backward_data(grads[1], softmax, 1, softmax.scalar_type()).to(dtype_);
      results[0] = results[0].defined() ? results[0] + own : own;
    }
    return results;
  }

  at::Tensor gradient(const at::Tensor& grad, const at::Tensor& softmax) {
    const at::Tensor target = target_.unpack();
    const at::Tensor total = total_.unpack();
    if (!at::GradMode::is_enabled() && !torch::autograd::isFwGradDefined(grad)) {
      return cross_entropy_backward(grad, softmax, target, total, reduction_, ignore_index_,
                                    dtype_);
    }
    const at::Tensor counts = target.ne(ignore_index_.guard_int(__FILE__, __LINE__));
    const at::Tensor chosen = at::where(counts, target, 0).unsqueeze(1);
    const at::Tensor at_target = at::zeros_like(softmax).scatter(1, chosen, 1);
    const at::Tensor row_grad = reduction_ == at::Reduction::Mean ? grad / total : grad;
    const at::Tensor scale = at::where(counts, row_grad, 0).unsqueeze(1);
    return ((softmax - at_target) * scale).to(dtype_);
  }

  SavedVariable target_, total_, softmax_;
  const c10::ScalarType dtype_;
  const std::int64_t reduction_;
  c10::SymInt ignore_index_;
};

at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target,
                              const std::optional<at::Tensor>& weight, std::int64_t reduction,
                              c10::SymInt ignore_index, double label_smoothing) {
  if (!is_common_form(self, target, weight, reduction, label_smoothing)) {
    return at::native::cross_entropy_loss_symint(self, target, weight, reduction,
                                                 std::move(ignore_index), label_smoothing);
  }
  const bool needs_gradient = torch::autograd::compute_requires_grad(self);
  const auto [loss, total, softmax] = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return cross_entropy(self, target, reduction, ignore_index, needs_gradient);
  }();
  if (needs_gradient) {
    const auto node = c10::make_intrusive<CrossEntropyLossBackward>(
        target, total, self.scalar_type(), reduction, std::move(ignore_index));
    node->set_next_edges(torch::autograd::collect_next_edges(self));
    CrossEntropyLossBackward::attach(node, loss, softmax);
  }
  return loss;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("cross_entropy_loss", TORCH_FN(cross_entropy_loss));
}

}  // namespace loom::ops
