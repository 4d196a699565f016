// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What gradients of bags of embeddings are made of, beside sums of listed rows (listed_sums.h).
// Templates, as those of bags.h. Thread: any.

#include "loom/simd/half.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::kernels::index {

/// Divides the factor of each place by the size of its bag, unless that is 0.
template <class Index>
void divide_factors(std::vector<float>& factors, const std::int64_t* bag_of,
                    const Index* sizes) noexcept {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (sizes[bag_of[i]] != 0) factors[i] /= static_cast<float>(sizes[bag_of[i]]);
  }
}

/// Gradients of largest elements, of which each goes to the row that it was found in.
template <class T, class Index>
struct MaximaGradients {
  T* to;
  const T* gradient;
  const Index *of_rows, *bag_sizes;
  std::int64_t rows, bags, columns;  ///< of the table and of the gradients, which are dense

  /// Columns [begin, end), rounded at each addition; bags without places have none.
  void add(std::int64_t begin, std::int64_t end) const noexcept {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::fill(to + r * columns + begin, to + r * columns + end, T{});
    }
    for (std::int64_t b = 0; b < bags; ++b) {
      if (bag_sizes[b] == 0) continue;
      for (std::int64_t c = begin; c < end; ++c) {
        T& sum = to[static_cast<std::int64_t>(of_rows[b * columns + c]) * columns + c];
        simd::round_to(sum, simd::widen(sum) + simd::widen(gradient[b * columns + c]));
      }
    }
  }
};

}  // namespace loom::kernels::index
