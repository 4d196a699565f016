// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/meta/dtype_probe.h"

#include "loom/ops/launch/number_check.h"

#include <ATen/DimVector.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/TensorImpl.h>

#include <cmath>
#include <limits>

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

bool detail::fits(c10::ScalarType dtype, const at::Scalar& number) {
  if (number.isSymbolic() || c10::isComplexType(dtype)) return true;
  if (number.isComplex()) return false;
  if (dtype == c10::kDouble || dtype == c10::kBool) return true;
  const double value = number.toDouble();
  if (c10::isFloatingType(dtype)) {
    const double most = dtype == c10::kHalf ? 65504.0 : std::numeric_limits<float>::max();
    return !std::isfinite(value) || std::abs(value) <= most;
  }
  // Half of what the dtype's bits can tell, or all of it: a number between is looked at anew.
  const double most = std::exp2(8.0 * static_cast<double>(c10::elementSize(dtype)) - 1) - 1;
  return value >= (dtype == c10::kByte ? 0 : -most) && value <= most;
}

NoWarnings::NoWarnings() : guard_(silence()) {}

at::Tensor stand_in(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::DimVector sizes(tensor.dim(), 1);
  const auto options = c10::TensorOptions(c10::kCPU).dtype(tensor.scalar_type());
  at::Tensor ones = is_memory_only(tensor.scalar_type()) ? at::empty(sizes, options).zero_()
                                                         : at::ones(sizes, options);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    ones.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return ones;
}

}  // namespace loom::ops
