// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/lines.h"

#include <c10/util/accumulate.h>

namespace loom::ops {

Lines lines_of(const at::Tensor& tensor, std::int64_t dim, std::int64_t count) {
  const auto sizes = tensor.sizes();
  return {.outer = c10::multiply_integers(sizes.slice(0, dim)),
          .items = sizes[dim],
          .inner = c10::multiply_integers(sizes.slice(dim + 1)),
          .count = count,
          .supplied = count};
}

std::optional<Places> places_of(const TensorRef& index, std::int64_t items, bool wraps) {
  const auto from = [&]<class Index>(Index) {
    return Places::of(reinterpret_cast<const Index*>(index.data()), index.numel(), items, wraps);
  };
  return index.dtype() == c10::kInt ? from(std::int32_t{}) : from(std::int64_t{});
}

bool can_combine(Combine how, c10::ScalarType dtype) noexcept {
  return how == Combine::kCopy ? c10::elementSize(dtype) <= 16 && !c10::isQIntType(dtype)
                               : dtype == c10::kFloat || dtype == c10::kDouble ||
                                     dtype == c10::kInt || dtype == c10::kLong;
}

}  // namespace loom::ops
