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

at::Tensor stand_in(const at::Tensor& tensor, bool of_its_sizes) {
  if (!tensor.defined()) return {};
  const auto options = c10::TensorOptions(c10::kCPU).dtype(tensor.scalar_type());
  const at::DimVector ones(static_cast<std::size_t>(tensor.dim()), 1);
  at::Tensor made;
  if (of_its_sizes || is_memory_only(tensor.scalar_type())) {
    made = at::empty(of_its_sizes ? tensor.sizes() : c10::IntArrayRef(ones), options).zero_();
  } else {
    made = at::ones(ones, options);
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return made;
}

}  // namespace loom::ops
