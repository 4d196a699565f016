// SPDX-License-Identifier: BSD-3-Clause
// Weights that are a direction times a length. ATen's shape inference expects the norms of float16
// in float16, its CPU kernel makes them in float32. Cut along the rows, where each has a norm.
#include "loom/backend/registration.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/native/cpu/WeightNormKernel.h>
#include <torch/library.h>

#include <tuple>

namespace loom::ops {
namespace {

// Of one element that is squared, added and scaled, beside an addition.
constexpr double kCost = 3;

void weigh(const at::Tensor& weight, const at::Tensor& norm, const at::Tensor& direction,
           const at::Tensor& length, std::int64_t dim) {
  at::Tensor to = weight, norms = norm;
  at::native::weight_norm_stub(c10::kCPU, to, norms, direction, length, dim);
}

bool is_narrow(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
}

std::tuple<at::Tensor, at::Tensor> weight_norm(const at::Tensor& direction,
                                               const at::Tensor& length, std::int64_t dim) {
  const c10::ScalarType dtype = direction.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_narrow(dtype) || dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double,
      "\"weight_norm_kernel\" not implemented for '", dtype, "'");
  const c10::ScalarType wide =
      is_narrow(length.scalar_type()) ? c10::ScalarType::Float : length.scalar_type();
  at::Tensor weight = empty(direction.sizes(), dtype, direction.device());
  at::Tensor norm = empty_strided(length.sizes(), length.strides(), wide, length.device());
  if (direction.numel() == 0) {
    norm.zero_();
  } else if (dim == 0 && direction.dim() > 0) {
    const auto row = static_cast<double>(direction.numel() / direction.size(0));
    launch("_weight_norm_interface", Along{.dims = {0, 0, 0, 0}, .cost = kCost * row}, &weigh,
           out(weight), out(norm), direction, length, dim);
  } else {
    launch("_weight_norm_interface", Whole{}, &weigh, out(weight), out(norm), direction, length,
           dim);
  }
  return {weight, norm};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_weight_norm_interface", TORCH_FN(weight_norm)); }

}  // namespace loom::ops
