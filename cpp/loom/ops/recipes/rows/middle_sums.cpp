// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/middle_sums.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/pool_resample/pool_rows.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/middle.h"

#include <algorithm>
#include <optional>

namespace loom::ops {
namespace {

// Of an element that is added, where an addition of a large vector costs 1.
constexpr double kElementCost = 0.5;
// Fewer elements beside each other are no vectors; longer sums want to be added in parts.
constexpr std::int64_t kFewestBeside = 16, kMostSummed = 8192;
// Elements beside each other that a block has, at the least: whole cache lines.
constexpr std::int64_t kPartElements = 64;

template <class T>
void sum_up(Grid& grid, const TensorRef& result, const TensorRef& input, const Middle& m,
            float divisor) {
  const double cost = kElementCost * static_cast<double>(m.summed * m.inner);
  // Few outer ones are cut along the inner.
  const std::int64_t most = ceil_div(m.inner, kPartElements);
  const std::int64_t wanted =
      ceil_div(m.inner, block_length(m.inner, cost / static_cast<double>(m.inner)));
  const std::int64_t parts = m.outer >= kPartElements ? 1 : std::min(most, wanted);
  const std::int64_t length = round_up(ceil_div(m.inner, parts), kPartElements);
  const std::int64_t all = m.outer * parts;
  const std::int64_t block = block_length(all, cost / static_cast<double>(parts));
  const std::int32_t begin = 0, end = static_cast<std::int32_t>(m.summed);
  const auto* const from = reinterpret_cast<const T*>(input.data());
  auto* const to = reinterpret_cast<T*>(result.data());
  grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
    for (std::int64_t i = index * block; i < std::min(all, (index + 1) * block); ++i) {
      const std::int64_t outer = i / parts, first = i % parts * length;
      if (first >= m.inner) continue;
      const T* const line = from + outer * m.summed * m.inner + first;
      kernels::pool_resample::average_pixels<T>(&line, 1, {1, &begin, &end}, &divisor,
                                                {std::min(length, m.inner - first), m.inner},
                                                to + outer * m.inner + first);
    }
  });
}

void sum_kernel(Grid& grid, const TensorRef& result, const TensorRef& input, const Middle& middle,
                float divisor) {
  switch (result.dtype()) {
    case c10::ScalarType::Float:
      return sum_up<float>(grid, result, input, middle, divisor);
    case c10::ScalarType::BFloat16:
      return sum_up<simd::BFloat16>(grid, result, input, middle, divisor);
    default:
      return sum_up<simd::Half>(grid, result, input, middle, divisor);
  }
}

}  // namespace

bool launch_middle_sums(const char* name, const at::Tensor& result, const at::Tensor& self,
                        Reduced reduced, bool mean) {
  const c10::ScalarType dtype = self.scalar_type();
  if ((dtype != c10::kFloat && dtype != c10::kBFloat16 && dtype != c10::kHalf) ||
      result.scalar_type() != dtype || self.numel() == 0 || self.is_neg() ||
      self._is_zerotensor()) {
    return false;
  }
  const std::optional<Middle> middle = middle_of(self, reduced);
  if (!middle || middle->inner < kFewestBeside || middle->summed < 2 ||
      middle->summed > kMostSummed || !follows(result, self, reduced)) {
    return false;
  }
  launch(name, Custom{}, sum_kernel, out(result), self, *middle,
         mean ? static_cast<float>(middle->summed) : 1.F);
  return true;
}

}  // namespace loom::ops
