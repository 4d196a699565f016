// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/scan.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/scan/half_scan.h"
#include "loom/kernels/scan/scan.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"

#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace loom::ops {
namespace {

using kernels::scan::HalfScan;
using kernels::scan::Layout;

template <class T, bool kProduct>
using Scan = std::conditional_t<sizeof(T) == sizeof(simd::Half), HalfScan<T, kProduct>,
                                kernels::scan::Scan<T, kProduct>>;

// Of an element, in the unit of Pointwise: it waits for the one before.
constexpr double kCost = 2;
// As many rows, or groups of columns, are enough for all cores.
constexpr std::int64_t kEnoughUnits = 16;

template <class Scan>
void in_units(Grid& grid, const Scan& scan) {
  const Layout& layout = scan.layout;
  const std::int64_t units = layout.units();
  const std::int64_t block =
      block_length(units, kCost * static_cast<double>(layout.length * layout.width()));
  grid.run_by_any(ceil_div(units, block), [&](std::int64_t index) {
    const std::int64_t end = std::min(units, (index + 1) * block);
    if (layout.inner == 1) return scan.in_rows(index * block, end);
    for (std::int64_t unit = index * block; unit < end; ++unit) {
      auto all = scan.none();
      scan.template run<true>(unit, 0, layout.length, all);
    }
  });
}

template <class Scan>
void in_parts(Grid& grid, const Scan& scan, std::int64_t block) {
  const std::int64_t length = scan.layout.length, units = scan.layout.units();
  const std::int64_t parts = ceil_div(length, block);
  std::vector before(static_cast<std::size_t>(units * parts), scan.none());
  const auto each = [&](auto&& body) {
    grid.run_by_any(units * parts, [&](std::int64_t index) {
      const std::int64_t begin = index % parts * block;
      body(before[static_cast<std::size_t>(index)], index / parts, begin,
           std::min(length, begin + block));
    });
  };
  each([&](auto& all, std::int64_t unit, std::int64_t begin, std::int64_t end) {
    scan.template run<false>(unit, begin, end, all);
  });
  for (std::int64_t unit = 0; unit < units; ++unit) {
    auto so_far = scan.none();
    for (std::int64_t part = 0; part < parts; ++part) {
      scan.pass_on(unit, so_far, before[static_cast<std::size_t>(unit * parts + part)]);
    }
  }
  each([&](auto& all, std::int64_t unit, std::int64_t begin, std::int64_t end) {
    scan.template run<true>(unit, begin, end, all);
  });
}

template <class T, bool kProduct>
void scan(Grid& grid, const TensorRef& result, const TensorRef& self, Layout layout) {
  const Scan<T, kProduct> scan{elements<const T>(self), elements<T>(result), layout};
  const std::int64_t block =
      block_length(layout.length, kCost * static_cast<double>(layout.width()));
  if (layout.units() >= kEnoughUnits || block >= layout.length) return in_units(grid, scan);
  in_parts(grid, scan, block);
}

template <class T>
void launch_scan(const char* name, const at::Tensor& result, const at::Tensor& self, Layout layout,
                 bool product) {
  if (product) {
    launch(name, Custom{}, scan<T, true>, out(result), self, layout);
  } else {
    launch(name, Custom{}, scan<T, false>, out(result), self, layout);
  }
}

}  // namespace

bool launch_scan(const char* name, const at::Tensor& result, const at::Tensor& self,
                 std::int64_t dim, bool product) {
  if (self.dim() == 0 || self.numel() == 0 || self.scalar_type() != result.scalar_type() ||
      result.sizes() != self.sizes() || !self.is_contiguous() || !result.is_contiguous() ||
      self.is_neg() || result.is_neg()) {
    return false;
  }
  const std::int64_t scanned = c10::maybe_wrap_dim(dim, self.dim());
  Layout layout;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    (d < scanned ? layout.outer : d == scanned ? layout.length : layout.inner) *= self.size(d);
  }
  switch (self.scalar_type()) {
    case c10::kFloat:
      launch_scan<float>(name, result, self, layout, product);
      return true;
    case c10::kDouble:
      launch_scan<double>(name, result, self, layout, product);
      return true;
    case c10::kBFloat16:
      launch_scan<simd::BFloat16>(name, result, self, layout, product);
      return true;
    case c10::kHalf:
      launch_scan<simd::Half>(name, result, self, layout, product);
      return true;
    case c10::kLong:
      launch_scan<std::int64_t>(name, result, self, layout, product);
      return true;
    default:
      return false;
  }
}

}  // namespace loom::ops
