// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/dtype_probe.h"

#include <ATen/DimVector.h>
#include <ATen/ops/ones.h>
#include <c10/core/TensorImpl.h>

namespace loom::ops {
namespace {

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

c10::WarningHandler* silence() {
  static Silence handler;  // has no state: any thread may use it
  return &handler;
}

}  // namespace

NoWarnings::NoWarnings() : guard_(silence()) {}

at::Tensor stand_in(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  at::Tensor ones = at::ones(at::DimVector(tensor.dim(), 1),
                             c10::TensorOptions(c10::kCPU).dtype(tensor.scalar_type()));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    ones.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return ones;
}

}  // namespace loom::ops
