// SPDX-License-Identifier: BSD-3-Clause
// Poolings that ATen has no structured form of: maxima of volumes, and adaptive averages, which
// area interpolation is made of. Calls that are not for kernels of ours are deferred as before.
#include "loom/ops/recipes/rows/pooling.h"

#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/recipes/watched.h"

#include <ATen/DimVector.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/max_pool1d_native.h>
#include <ATen/ops/max_pool2d_native.h>
#include <ATen/ops/max_pool3d_native.h>
#include <c10/core/GradMode.h>
#include <c10/core/MemoryFormat.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace loom::ops {
namespace {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

bool is_for_kernels(const at::Tensor& input, std::int64_t dims) {
  return input.numel() > 0 && (input.dim() == dims + 1 || input.dim() == dims + 2) &&
         input.layout() == c10::kStrided && !input._is_zerotensor() &&
         c10::isFloatingType(input.scalar_type());
}

/// With the device of `input`, and its memory format if it has samples of so many dimensions.
at::Tensor empty_as(const at::Tensor& input, c10::IntArrayRef sizes, c10::ScalarType dtype,
                    std::int64_t dims) {
  const auto format =
      input.dim() == dims + 2 ? input.suggest_memory_format() : c10::MemoryFormat::Contiguous;
  return empty(sizes, dtype, input.device(), format);
}

/// The sizes of a maximum's results, if the arguments are valid.
std::optional<at::DimVector> largest_sizes(const at::Tensor& self, const Pooling& pooling,
                                           bool ceil_mode) {
  const auto fits = [&](c10::IntArrayRef list) {
    return list.size() == 1 || static_cast<std::int64_t>(list.size()) == pooling.dims;
  };
  if (!fits(pooling.kernel) || !fits(pooling.padding) || !fits(pooling.dilation) ||
      !(pooling.stride.empty() || fits(pooling.stride))) {
    return std::nullopt;
  }
  at::DimVector sizes(self.sizes());
  for (std::int64_t i = 0; i < pooling.dims; ++i) {
    const auto number = [&](c10::IntArrayRef list) {
      return list.size() == 1 ? list[0] : list[static_cast<std::size_t>(i)];
    };
    const std::int64_t kernel = number(pooling.kernel), padding = number(pooling.padding),
                       dilation = number(pooling.dilation),
                       stride = pooling.stride.empty() ? kernel : number(pooling.stride);
    if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || padding > kernel / 2) {
      return std::nullopt;
    }
    const std::int64_t dim = self.dim() - pooling.dims + i;
    const auto size = at::native::pooling_output_shape<std::int64_t>(
        self.size(dim), kernel, padding, stride, dilation, ceil_mode);
    if (size < 1) return std::nullopt;
    sizes[static_cast<std::size_t>(dim)] = size;
  }
  return sizes;
}

TwoTensors max_pool3d(const at::Tensor& self, c10::IntArrayRef kernel, c10::IntArrayRef stride,
                      c10::IntArrayRef padding, c10::IntArrayRef dilation, bool ceil_mode) {
  const Pooling pooling{
      .dims = 3, .kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation};
  if (is_for_kernels(self, 3)) {
    if (const auto sizes = largest_sizes(self, pooling, ceil_mode)) {
      at::Tensor result = empty_as(self, *sizes, self.scalar_type(), 3);
      at::Tensor indices = empty_as(self, *sizes, c10::kLong, 3);
      if (launch_largest("max_pool3d_with_indices", result, indices, self, pooling)) {
        return {std::move(result), std::move(indices)};
      }
    }
  }
  return call_fallback<TwoTensors, const at::Tensor&, c10::IntArrayRef, c10::IntArrayRef,
                       c10::IntArrayRef, c10::IntArrayRef, bool>(
      "aten::max_pool3d_with_indices", "", self, kernel, stride, padding, dilation, ceil_mode);
}

/// The largest elements alone, where nobody asks for their places: a place takes more memory than
/// an element. Undefined if somebody does, for a gradient, or the call is not for kernels of ours.
at::Tensor largest_values(const char* name, const at::Tensor& self, const Pooling& pooling,
                          bool ceil_mode) {
  // Fake tensors may have sizes that are symbols: nothing else is asked of them.
  if (is_watched(self) || !is_for_kernels(self, pooling.dims) ||
      torch::autograd::isFwGradDefined(self) ||
      (c10::GradMode::is_enabled() && self.requires_grad())) {
    return {};
  }
  const auto sizes = largest_sizes(self, pooling, ceil_mode);
  if (!sizes) return {};
  at::Tensor result = empty_as(self, *sizes, self.scalar_type(), pooling.dims);
  if (!launch_largest(name, result, at::Tensor(), self, pooling)) return {};
  return result;
}

template <int kDims>
at::Tensor max_pool(const at::Tensor& self, c10::IntArrayRef kernel, c10::IntArrayRef stride,
                    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool ceil_mode) {
  const Pooling pooling{
      .dims = kDims, .kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation};
  constexpr const char* kName = kDims == 2 ? "max_pool2d" : "max_pool3d";
  at::Tensor result = largest_values(kName, self, pooling, ceil_mode);
  if (result.defined()) return result;
  constexpr auto composite = kDims == 2 ? &at::native::max_pool2d : &at::native::max_pool3d;
  return composite(self, kernel, stride, padding, dilation, ceil_mode);
}

/// A row is an image of one row.
at::Tensor max_pool1d(const at::Tensor& self, c10::IntArrayRef kernel, c10::IntArrayRef stride,
                      c10::IntArrayRef padding, c10::IntArrayRef dilation, bool ceil_mode) {
  const auto is_one = [](c10::IntArrayRef list) { return list.size() == 1; };
  if (!is_watched(self) && is_for_kernels(self, 1) && is_one(kernel) && is_one(padding) &&
      is_one(dilation) && (stride.empty() || is_one(stride))) {
    const std::array<std::int64_t, 2> kernels{1, kernel[0]}, paddings{0, padding[0]},
        dilations{1, dilation[0]}, strides{1, stride.empty() ? kernel[0] : stride[0]};
    const Pooling pooling{.dims = 2,
                          .kernel = kernels,
                          .stride = strides,
                          .padding = paddings,
                          .dilation = dilations};
    const at::Tensor result = largest_values("max_pool1d", self.unsqueeze(-2), pooling, ceil_mode);
    if (result.defined()) return result.squeeze(-2);
  }
  return at::native::max_pool1d(self, kernel, stride, padding, dilation, ceil_mode);
}

void register_values(torch::Library& m) {
  m.impl("max_pool1d", TORCH_FN(max_pool1d));
  m.impl("max_pool2d", TORCH_FN(max_pool<2>));
  m.impl("max_pool3d", TORCH_FN(max_pool<3>));
}

/// ATen's results of images follow their format; those of volumes are contiguous.
template <int kDims>
at::Tensor adaptive_average(const at::Tensor& self, c10::SymIntArrayRef output_size) {
  constexpr const char* kName =
      kDims == 2 ? "aten::_adaptive_avg_pool2d" : "aten::_adaptive_avg_pool3d";
  const auto given = c10::asIntArrayRefSlowOpt(output_size);
  if (is_for_kernels(self, kDims) && given && given->size() == kDims &&
      std::all_of(given->begin(), given->end(), [](std::int64_t size) { return size > 0; })) {
    at::DimVector sizes(self.sizes());
    std::copy(given->begin(), given->end(), sizes.end() - kDims);
    at::Tensor result = kDims == 2 ? empty_as(self, sizes, self.scalar_type(), kDims)
                                   : empty(sizes, self.scalar_type(), self.device());
    if (launch_adaptive_average(kName + 6, result, self, kDims)) return result;
  }
  return call_fallback<at::Tensor, const at::Tensor&, c10::SymIntArrayRef>(kName, "", self,
                                                                           output_size);
}

template <int kDims>
at::Tensor adaptive_average_gradient(const at::Tensor& grad, const at::Tensor& self) {
  constexpr const char* kName =
      kDims == 2 ? "aten::_adaptive_avg_pool2d_backward" : "aten::_adaptive_avg_pool3d_backward";
  if (is_for_kernels(self, kDims) && is_for_kernels(grad, kDims) && grad.dim() == self.dim() &&
      grad.scalar_type() == self.scalar_type() && grad.device() == self.device() &&
      grad.sizes().slice(0, self.dim() - kDims) == self.sizes().slice(0, self.dim() - kDims)) {
    at::Tensor result = kDims == 2 ? empty_as(self, self.sizes(), self.scalar_type(), kDims)
                                   : empty(self.sizes(), self.scalar_type(), self.device());
    if (launch_adaptive_average_gradient(kName + 6, result, grad, kDims)) return result;
  }
  return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>(kName, "", grad, self);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_values(m); }
LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_values(m);
  m.impl("max_pool3d_with_indices", TORCH_FN(max_pool3d));
  m.impl("_adaptive_avg_pool2d", TORCH_FN(adaptive_average<2>));
  m.impl("_adaptive_avg_pool3d", TORCH_FN(adaptive_average<3>));
  m.impl("_adaptive_avg_pool2d_backward", TORCH_FN(adaptive_average_gradient<2>));
  m.impl("_adaptive_avg_pool3d_backward", TORCH_FN(adaptive_average_gradient<3>));
}

}  // namespace loom::ops
