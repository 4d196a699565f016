// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/index/joint_places.h"

namespace loom::kernels::index::LOOM_SIMD {
namespace {

/// Places that a line of the index contributes; what comes back has the sign of all that are not
/// to be.
template <class Index, class Stride>
[[gnu::always_inline]] inline std::int64_t add_line(const Index* from, Stride stride,
                                                    std::int64_t count, std::int64_t items,
                                                    std::int64_t step, std::int64_t* to) {
  std::int64_t negative = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = from[i * stride];
    negative |= (place + items) | (items - 1 - place);
    to[i] += (place + (place < 0 ? items : 0)) * step;
  }
  return negative;
}

struct One {
  friend constexpr std::int64_t operator*(std::int64_t i, One) { return i; }
};

}  // namespace

template <class Index>
bool add_places(const DimPlaces<Index>& dim, std::int64_t begin, std::int64_t end,
                std::int64_t* to) noexcept {
  const std::int64_t length = dim.dims == 0 ? 1 : dim.sizes[dim.dims - 1];
  const std::int64_t stride = dim.dims == 0 ? 0 : dim.strides[dim.dims - 1];
  std::int64_t negative = 0;
  while (begin < end) {
    std::int64_t line = begin / length;
    const std::int64_t first = begin % length;
    const std::int64_t count = length - first < end - begin ? length - first : end - begin;
    const Index* from = dim.index + first * stride;
    for (std::int64_t d = dim.dims - 2; d >= 0; --d) {
      from += line % dim.sizes[d] * dim.strides[d];
      line /= dim.sizes[d];
    }
    negative |= stride == 1 ? add_line(from, One{}, count, dim.items, dim.step, to)
                            : add_line(from, stride, count, dim.items, dim.step, to);
    to += count;
    begin += count;
  }
  return negative >= 0;
}

template bool add_places(const DimPlaces<std::int32_t>&, std::int64_t, std::int64_t,
                         std::int64_t*) noexcept;
template bool add_places(const DimPlaces<std::int64_t>&, std::int64_t, std::int64_t,
                         std::int64_t*) noexcept;

}  // namespace loom::kernels::index::LOOM_SIMD
