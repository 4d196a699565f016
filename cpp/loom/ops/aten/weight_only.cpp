// SPDX-License-Identifier: BSD-3-Clause
// Linear layers whose weights are whole numbers of eight or four bits, with scales. What ATen's
// operators refuse, they refuse here.
#include "loom/ops/recipes/product/weight_only.h"

#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch_open.h"

#include <torch/library.h>

namespace loom::ops {
namespace {

bool is_floating(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  return (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf) && !tensor.is_neg();
}

bool fits(const at::Tensor& left, const at::Tensor& weight, c10::ScalarType dtype,
          const at::Tensor& scales) {
  return is_floating(left) && is_floating(scales) && scales.is_contiguous() &&
         scales.scalar_type() == left.scalar_type() && weight.scalar_type() == dtype &&
         weight.is_contiguous() && left.dim() == 2 && left.stride(1) == 1 && weight.dim() == 2 &&
         left.numel() > 0 && weight.numel() > 0;
}

/// The result of a kernel: a row for each of `given`, which may have gaps between its rows, a
/// column for each of `weight`, the dtype of `scales`.
template <class Kernel, class... More>
at::Tensor launch_product(const char* name, Kernel kernel, const at::Tensor& given,
                          const at::Tensor& weight, const at::Tensor& scales, More... more) {
  const at::Tensor left = given.contiguous();
  const std::int64_t rows = left.size(0), columns = weight.size(0);
  at::Tensor result = empty({rows, columns}, scales.scalar_type(), left.device());
  const double work = static_cast<double>(left.numel()) * static_cast<double>(columns);
  launch_open_if_long(name, {rows, columns}, work, kernel, out(result), left, weight, scales,
                      more...);
  return result;
}

at::Tensor int8_linear(const at::Tensor& left, const at::Tensor& weight, const at::Tensor& scales) {
  if (!fits(left, weight, at::kChar, scales) || weight.size(1) != left.size(1) ||
      scales.dim() != 1 || scales.size(0) != weight.size(0)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&>(
        "aten::_weight_int8pack_mm", "", left, weight, scales);
  }
  return launch_product("_weight_int8pack_mm", int8_product, left, weight, scales);
}

at::Tensor int4_linear(const at::Tensor& left, const at::Tensor& weight, std::int64_t group,
                       const at::Tensor& scales) {
  const bool suits = fits(left, weight, at::kByte, scales) &&
                     (group == 32 || group == 64 || group == 128 || group == 256) &&
                     2 * weight.size(1) == left.size(1) && left.size(1) % group == 0 &&
                     weight.size(0) % 16 == 0 && scales.dim() == 3 &&
                     scales.size(0) == left.size(1) / group && scales.size(1) == weight.size(0) &&
                     scales.size(2) == 2;
  if (!suits) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, std::int64_t,
                         const at::Tensor&>("aten::_weight_int4pack_mm_for_cpu", "", left, weight,
                                            group, scales);
  }
  const auto packing = Int4Packing::of_this_processor();
  return launch_product("_weight_int4pack_mm_for_cpu", int4_product,
                        packing.takes(left.scalar_type()) ? left : left.to(at::kFloat), weight,
                        scales, group, packing);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_int8pack_mm", TORCH_FN(int8_linear));
  m.impl("_weight_int4pack_mm_for_cpu", TORCH_FN(int4_linear));
}

}  // namespace loom::ops
