// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/middle.h"

#include <ATen/DimVector.h>

#include <algorithm>
#include <numeric>

namespace loom::ops {

std::optional<Middle> middle_of(const at::Tensor& self, Reduced reduced) {
  at::DimVector order(static_cast<std::size_t>(self.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return self.stride(a) < self.stride(b); });
  Middle made;
  std::int64_t step = 1;
  int part = 0;  // inner, summed, outer
  for (const std::int64_t d : order) {
    if (self.size(d) == 1) continue;
    if (self.stride(d) != step) return {};
    step *= self.size(d);
    const bool sums = reduced.reduces(d);
    if (part == 0 && sums) part = 1;
    if (part == 1 && !sums) part = 2;
    if (part == 2 && sums) return {};
    (part == 0 ? made.inner : part == 1 ? made.summed : made.outer) *= self.size(d);
  }
  return made;
}

bool follows(const at::Tensor& result, const at::Tensor& self, Reduced reduced) {
  std::int64_t at = 0, summed_step = 1;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (reduced.reduces(d)) summed_step *= self.size(d);
  }
  const std::int64_t inner = middle_of(self, reduced)->inner;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const bool sums = reduced.reduces(d);
    if (!sums && self.size(d) != 1) {
      const std::int64_t stride =
          self.stride(d) < inner ? self.stride(d) : self.stride(d) / summed_step;
      if (result.stride(at) != stride) return false;
    }
    if (!sums || reduced.keepdim) ++at;
  }
  return true;
}

}  // namespace loom::ops
