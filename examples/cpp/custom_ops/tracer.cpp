// SPDX-License-Identifier: BSD-3-Clause
// torch.jit.trace: each call becomes one node of the graph, and nothing that happens inside it is
// recorded.
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/library.h>

#include "operators.h"
#include <memory>
#include <utility>

namespace custom_ops {
namespace {

namespace tracer = torch::jit::tracer;

/// Stops recording, and goes on with it when it dies.
class TracingPause {
 public:
  TracingPause() : state_(tracer::getTracingState()) { tracer::setTracingState(nullptr); }
  ~TracingPause() { tracer::setTracingState(std::move(state_)); }
  TracingPause(const TracingPause&) = delete;
  TracingPause& operator=(const TracingPause&) = delete;

 private:
  std::shared_ptr<tracer::TracingState> state_;
};

at::Tensor traced(const c10::TypedOperatorHandle<Binary>& op, c10::DispatchKeySet keys,
                  const at::Tensor& self, const at::Tensor& other) {
  const auto call = [&] {
    const TracingPause pause;
    const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Tracer);
    return op.redispatch(keys & below, self, other);
  };
  const auto& state = tracer::getTracingState();
  if (!state) return call();
  // After the call: one that throws, and is caught by the traced function, leaves no node.
  const at::Tensor result = call();
  torch::jit::Node* node =
      state->createNode(c10::Symbol::fromQualString(op.schema().name()), /*num_outputs=*/0);
  tracer::recordSourceLocation(node);
  tracer::addInputs(node, "self", self);
  tracer::addInputs(node, "other", other);
  state->insertNode(node);
  tracer::addOutput(node, result);
  return result;
}

at::Tensor myadd_traced(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& other) {
  return traced(myadd_operator(), keys, self, other);
}

at::Tensor mymatmul_traced(c10::DispatchKeySet keys, const at::Tensor& self,
                           const at::Tensor& other) {
  return traced(mymatmul_operator(), keys, self, other);
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, Tracer, m) {
  m.impl("myadd", TORCH_FN(myadd_traced));
  m.impl("mymatmul", TORCH_FN(mymatmul_traced));
}

}  // namespace custom_ops
