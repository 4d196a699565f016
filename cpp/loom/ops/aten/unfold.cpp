// SPDX-License-Identifier: BSD-3-Clause
// unfold (im2col): planes of all samples do not meet. What is not for the kernel is deferred.
#include "loom/kernels/copy/unfold.h"

#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/DimVector.h>
#include <ATen/native/im2col_shape_check.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <span>

namespace loom::ops {
namespace {

using kernels::UnfoldAxis;

// Of an element of the result, where an addition of a large vector costs 1.
constexpr double kElementCost = 0.5;

bool is_for_kernel(const at::Tensor& self, std::span<const c10::IntArrayRef> lists) {
  const c10::ScalarType dtype = self.scalar_type();
  const bool element = dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kBFloat16 ||
                       dtype == c10::kHalf;
  return element && self.layout() == c10::kStrided && !self.is_neg() && !self._is_zerotensor() &&
         self.numel() > 0 && (self.dim() == 3 || self.dim() == 4) &&
         std::all_of(lists.begin(), lists.end(), [](c10::IntArrayRef l) { return l.size() == 2; });
}

template <class T>
void unfold_planes(Grid& grid, const TensorRef& result, const TensorRef& input,
                   const std::array<UnfoldAxis, 2>& axes) {
  const auto& [y, x] = axes;
  const std::int64_t plane = y.size * x.size;
  const std::int64_t columns = y.kernel * x.kernel * y.windows * x.windows;
  const std::int64_t planes = result.numel() / columns;
  const std::int64_t block = block_length(planes, kElementCost * static_cast<double>(columns));
  const auto* const from = reinterpret_cast<const T*>(input.data());
  auto* const to = reinterpret_cast<T*>(result.data());
  grid.run_by_any(ceil_div(planes, block), [&](std::int64_t index) {
    for (std::int64_t p = index * block; p < std::min(planes, (index + 1) * block); ++p) {
      kernels::unfold_plane(y, x, from + p * plane, to + p * columns);
    }
  });
}

at::Tensor im2col(const at::Tensor& self, c10::IntArrayRef kernel, c10::IntArrayRef dilation,
                  c10::IntArrayRef padding, c10::IntArrayRef stride) {
  const c10::IntArrayRef lists[] = {kernel, dilation, padding, stride};
  if (!is_for_kernel(self, lists)) {
    return call_fallback<at::Tensor, const at::Tensor&, c10::IntArrayRef, c10::IntArrayRef,
                         c10::IntArrayRef, c10::IntArrayRef>("aten::im2col", "", self, kernel,
                                                             dilation, padding, stride);
  }
  at::native::im2col_shape_check(self, at::Tensor(), kernel[0], kernel[1], dilation[0], dilation[1],
                                 padding[0], padding[1], stride[0], stride[1]);
  const auto axis = [&](std::size_t i) {
    const std::int64_t size = self.size(self.dim() - 2 + static_cast<std::int64_t>(i));
    const std::int64_t seen = dilation[i] * (kernel[i] - 1) + 1;
    return UnfoldAxis{size,       (size + 2 * padding[i] - seen) / stride[i] + 1,
                      kernel[i],  stride[i],
                      padding[i], dilation[i]};
  };
  const std::array axes{axis(0), axis(1)};
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 3));
  sizes.push_back(self.size(-3) * kernel[0] * kernel[1]);
  sizes.push_back(axes[0].windows * axes[1].windows);
  at::Tensor result = empty(sizes, self.scalar_type(), self.device());
  const auto run = self.element_size() == 2   ? unfold_planes<std::uint16_t>
                   : self.element_size() == 4 ? unfold_planes<std::uint32_t>
                                              : unfold_planes<std::uint64_t>;
  launch("im2col", Custom{}, run, out(result), self.contiguous(), axes);
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("im2col", TORCH_FN(im2col)); }

}  // namespace loom::ops
