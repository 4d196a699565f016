// SPDX-License-Identifier: BSD-3-Clause
// Gradients, in reverse and in forward mode. A kernel notes what the gradient needs, calls the
// operator again below autograd, and attaches the gradient to the result. All derivatives are made
// of differentiable operators, so that those of higher orders come by themselves. (A C++
// autograd::Function is shorter, but torch.func refuses it and it has no forward mode.)
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include "operators.h"
#include <mutex>
#include <string>

namespace custom_ops {
namespace {

using torch::autograd::isFwGradDefined;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// What the gradient of an operand of a sum needs: not the operand, whose memory it would keep.
struct Shape {
  explicit Shape(const at::Tensor& operand)
      : sizes(operand.sym_sizes().begin(), operand.sym_sizes().end()),
        dtype(operand.scalar_type()) {}

  /// The gradient of an operand that was broadcast and promoted.
  [[nodiscard]] at::Tensor reduce(const at::Tensor& grad) const {
    const at::Tensor sum = at::sum_to(grad, sizes);
    return (sum.is_complex() && !at::isComplexType(dtype) ? at::real(sum) : sum).to(dtype);
  }

  c10::SymDimVector sizes;
  c10::ScalarType dtype;
};

class MyAddBackward final : public Node {
 public:
  MyAddBackward(const at::Tensor& self, const at::Tensor& other) : self_(self), other_(other) {}
  std::string name() const override { return "MyAddBackward"; }

 private:
  variable_list apply(variable_list&& grads) override {
    variable_list results(2);
    if (!grads[0].defined()) return results;
    if (task_should_compute_output(0)) results[0] = self_.reduce(grads[0]);
    if (task_should_compute_output(1)) results[1] = other_.reduce(grads[0]);
    return results;
  }

  const Shape self_, other_;
};

class MyMatmulBackward final : public Node {
 public:
  // An operand is kept for the gradient of the other one, if that is asked for.
  MyMatmulBackward(const at::Tensor& self, const at::Tensor& other)
      : self_(other.requires_grad() ? self : at::Tensor(), /*is_output=*/false),
        other_(self.requires_grad() ? other : at::Tensor(), /*is_output=*/false) {}
  std::string name() const override { return "MyMatmulBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    self_.reset_data();
    other_.reset_data();
  }

 private:
  variable_list apply(variable_list&& grads) override {
    // As in PyTorch's own nodes: two threads may run backward through one graph, and one of them
    // may release what the other unpacks.
    const std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(2);
    if (!grads[0].defined()) return results;
    if (task_should_compute_output(0)) results[0] = mymatmul(grads[0], other_.unpack().mH());
    if (task_should_compute_output(1)) results[1] = mymatmul(self_.unpack().mH(), grads[0]);
    return results;
  }

  SavedVariable self_, other_;
};

/// The tangent of a dual number, zero if it has none.
at::Tensor tangent(const at::Tensor& operand) {
  const at::Tensor& own = operand._fw_grad(/*level=*/0);
  return own.defined() ? own : at::zeros_like(operand._fw_primal(/*level=*/0));
}

at::Tensor myadd_tangent(const at::Tensor& self, const at::Tensor& other) {
  return myadd(tangent(self), tangent(other));
}

at::Tensor mymatmul_tangent(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor sum;
  if (isFwGradDefined(self)) sum = mymatmul(tangent(self), other._fw_primal(0));
  if (!isFwGradDefined(other)) return sum;
  const at::Tensor second = mymatmul(self._fw_primal(0), tangent(other));
  return sum.defined() ? myadd(sum, second) : second;
}

template <class Backward, auto kTangent>
at::Tensor differentiable(const c10::TypedOperatorHandle<Binary>& op, c10::DispatchKeySet keys,
                          const at::Tensor& self, const at::Tensor& other) {
  namespace autograd = torch::autograd;
  c10::intrusive_ptr<Backward> node;
  if (autograd::compute_requires_grad(self, other)) {
    node = c10::make_intrusive<Backward>(self, other);
    node->set_next_edges(autograd::collect_next_edges(self, other));
  }
  const bool is_dual = isFwGradDefined(self) || isFwGradDefined(other);
  const at::Tensor result = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op.redispatch(keys & c10::after_autograd_keyset, self, other);
  }();
  if (node) autograd::set_history(result, node);
  if (is_dual) result._set_fw_grad(kTangent(self, other), /*level=*/0, /*is_inplace_op=*/false);
  return result;
}

at::Tensor myadd_autograd(c10::DispatchKeySet keys, const at::Tensor& self,
                          const at::Tensor& other) {
  return differentiable<MyAddBackward, myadd_tangent>(myadd_operator(), keys, self, other);
}

at::Tensor mymatmul_autograd(c10::DispatchKeySet keys, const at::Tensor& self,
                             const at::Tensor& other) {
  return differentiable<MyMatmulBackward, mymatmul_tangent>(mymatmul_operator(), keys, self, other);
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, Autograd, m) {
  m.impl("myadd", TORCH_FN(myadd_autograd));
  m.impl("mymatmul", TORCH_FN(mymatmul_autograd));
}

}  // namespace custom_ops
