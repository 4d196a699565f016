// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/self_overlap.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

namespace loom::ops {

bool may_overlap_itself(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  std::array<std::size_t, 64> dims;  // what every view operator allows
  const std::span<std::size_t> order(dims.data(), std::min(sizes.size(), dims.size()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t inside = 0;
  for (const std::size_t d : order) {
    if (sizes[d] == 0) return false;
    if (sizes[d] == 1) continue;
    if (strides[d] <= inside) return true;
    inside += strides[d] * (sizes[d] - 1);
  }
  return false;
}

}  // namespace loom::ops
