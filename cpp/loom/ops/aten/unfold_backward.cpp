// SPDX-License-Identifier: BSD-3-Clause
// The gradient of windows (unfold), of which stft and istft are made: ATen's kernel, on ranges of a
// dimension that the windows do not go along, or else on ranges of the one that they do, each of
// which sees the windows that reach into it.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/cuts/reduce.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/ops/copy_native.h>
#include <ATen/ops/unfold_backward_native.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

constexpr double kCost = 4;  // of an element of the windows
// A range is longer than what it shares with its neighbours.
constexpr std::int64_t kWindowsOfRange = 8;

struct Windows {
  std::int64_t dim, size, step;
};

void add_windows(at::Tensor to, const at::Tensor& windows, const Windows& how) {
  at::native::copy_(to,
                    at::native::unfold_backward(windows, to.sizes(), how.dim, how.size, how.step));
}

/// Elements [begin, end) of the dimension that the windows go along.
void add_range(const TensorRef& result, const at::Tensor& windows, const Windows& how,
               std::int64_t begin, std::int64_t end) {
  const std::int64_t count = windows.size(how.dim);
  const std::int64_t last = std::min((end - 1) / how.step, count - 1);
  // The first one that reaches into the range, or the one before the gap that it begins in.
  const std::int64_t reaching = std::max<std::int64_t>((begin - how.size + how.step) / how.step, 0);
  const std::int64_t first = std::min({reaching, begin / how.step, last});
  // All that those windows reach, of which the neighbours have parts.
  const std::int64_t from = first * how.step, reach = (last - first) * how.step + how.size;
  const std::int64_t length = std::max(from + reach, end) - from;
  at::DimVector sizes(result.sizes().begin(), result.sizes().end());
  sizes[how.dim] = length;
  const at::Tensor sums = at::native::unfold_backward(
      windows.narrow(how.dim, first, last - first + 1), sizes, how.dim, how.size, how.step);
  at::Tensor to = result.alias_slice(how.dim, begin, end - begin);
  at::native::copy_(to, sums.narrow(how.dim, begin - from, end - begin));
}

// Runs on the worker.
void add_ranges(Grid& grid, const TensorRef& result, const TensorRef& windows, Windows how) {
  const at::Tensor given = windows.alias();
  const std::int64_t items = result.sizes()[how.dim];
  const std::int64_t least = kWindowsOfRange * std::max(how.size, how.step);
  const std::int64_t block =
      std::max(least, block_length(items, kCost * static_cast<double>(windows.numel()) /
                                              static_cast<double>(items)));
  grid.run(ceil_div(items, block), [&](std::int64_t index) {
    add_range(result, given, how, index * block, std::min(items, (index + 1) * block));
  });
}

bool is_regular(const at::Tensor& gradient, c10::IntArrayRef sizes, const Windows& how) {
  const auto dtype = gradient.scalar_type();
  const bool known = dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kComplexFloat ||
                     dtype == c10::kComplexDouble;
  const auto dims = static_cast<std::int64_t>(sizes.size());
  if (!known || !gradient.is_privateuseone() || gradient.layout() != c10::kStrided ||
      gradient.is_conj() || gradient.is_neg() || gradient._is_zerotensor() ||
      gradient.numel() == 0 || dims == 0 || gradient.dim() != dims + 1 || how.dim < -dims ||
      how.dim >= dims || how.step < 1 || how.size < 1) {
    return false;
  }
  const std::int64_t dim = c10::maybe_wrap_dim(how.dim, dims);
  if (how.size > sizes[dim]) return false;
  at::DimVector windows(sizes.begin(), sizes.end());
  windows[dim] = (sizes[dim] - how.size) / how.step + 1;
  windows.push_back(how.size);
  return gradient.sizes() == c10::IntArrayRef(windows);
}

at::Tensor unfold_backward(const at::Tensor& gradient, c10::IntArrayRef sizes, std::int64_t dim,
                           std::int64_t size, std::int64_t step) {
  Windows how{dim, size, step};
  if (!is_regular(gradient, sizes, how)) [[unlikely]] {
    return call_fallback<at::Tensor, const at::Tensor&, c10::IntArrayRef, std::int64_t,
                         std::int64_t, std::int64_t>("aten::unfold_backward", "", gradient, sizes,
                                                     dim, size, step);
  }
  how.dim = c10::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size()));
  at::Tensor result = empty(sizes, gradient.scalar_type(), gradient.device());
  const double cost =
      kCost * static_cast<double>(gradient.numel()) / static_cast<double>(result.numel());
  Along split = cut_kept(result, reduced_dim(result, how.dim, /*keepdim=*/true), 1, cost);
  if (split.dims[0] == SlicePlan::kWhole) {
    launch("unfold_backward", Custom{}, add_ranges, out(result), gradient, how);
  } else {
    split.dims[1] = split.dims[0];
    launch("unfold_backward", split, add_windows, out(result), gradient, how);
  }
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("unfold_backward", TORCH_FN(unfold_backward)); }

}  // namespace loom::ops
