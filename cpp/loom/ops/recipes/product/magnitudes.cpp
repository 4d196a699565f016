// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/magnitudes.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/conv/exponents.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/convolve_parts.h"
#include "loom/ops/recipes/product/multiply.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <type_traits>

namespace loom::ops {
namespace {

using c10::BFloat16;
using kernels::conv::Exponents;

// Log2 of the largest element over the geometric mean: 4 for normal numbers, up to 7 for what gelu
// makes of them, 10 for softmax and for gradients of a network that classifies; 3 for its filters.
// Transforms for bfloat16 are larger ones, where elements reach pixels that do not see them.
template <class T>
constexpr std::int64_t kMostOctaves = std::is_same_v<T, float> ? 14 : 12;
// A weight is not seen at all where it lies beside the image, all of the others are.
constexpr std::int64_t kMostOctavesOfWeights = 10;
// The exponent of 2^-100: the transforms' factors are 1/576 at least.
constexpr std::int64_t kSmallestWeights = 27;
// Elements that are looked at together; they stay in L2 for those that read them next.
constexpr std::int64_t kSlice = 16384;

const Scratch t_slices;

Exponents exponents_of(const float* data, std::int64_t count) {
  return kernels::conv::exponents_of<float>(data, count);
}
Exponents exponents_of(const BFloat16* data, std::int64_t count) {
  return kernels::conv::exponents_of<simd::BFloat16>(stored(data), count);
}

/// One operand as slices of its parts along dimension 0.
template <class T>
struct Sliced {
  const T* data;
  std::int64_t parts_count, part, slices, slice;  ///< elements of a part, and of a slice of it
  std::int64_t together;                          ///< slices of a block

  explicit Sliced(const TensorRef& tensor)
      : data(reinterpret_cast<const T*>(tensor.data())),
        parts_count(tensor.sizes()[0]),
        part(tensor.numel() / parts_count),
        slices(ceil_div(part, kSlice)),
        slice(ceil_div(part, slices)),
        together(std::max<std::int64_t>(kSlice / slice, 1)) {}

  [[nodiscard]] std::int64_t count() const noexcept { return parts_count * slices; }
  [[nodiscard]] Blocks blocks() const noexcept { return {count(), together}; }

  void look_at(Blocks::Range range, Exponents* to) const {
    for (std::int64_t i = range.first; i < range.last; ++i) {
      const std::int64_t first = i % slices * slice;
      to[i] = exponents_of(data + i / slices * part + first, std::min(slice, part - first));
    }
  }

  /// Whether a part or slice spreads further; `largest` is set to the largest exponent of all.
  [[nodiscard]] bool spread(const Exponents* found, std::int64_t octaves,
                            std::int64_t& largest) const {
    bool wide = false;
    for (std::int64_t p = 0; p < parts_count; ++p) {
      Exponents whole;
      for (std::int64_t i = 0; i < slices; ++i, ++found) {
        wide = wide || found->spread(octaves);
        whole.add(*found);
      }
      wide = wide || whole.spread(octaves);
      largest = std::max(largest, whole.largest);
    }
    return wide;
  }
};

/// What the second operand may be.
struct Limits {
  std::int64_t octaves, smallest;
};

template <class T>
bool spreads(Grid& grid, const TensorRef& one, const TensorRef& other, Limits limits) {
  const Sliced<T> a(one), b(other);
  Exponents* const found = t_slices.get<Exponents>(a.count() + b.count());
  const Blocks of_a = a.blocks(), of_b = b.blocks();
  grid.run_by_any(of_a.count() + of_b.count(), [&](std::int64_t index) {
    if (index < of_a.count()) return a.look_at(of_a[index], found);
    b.look_at(of_b[index - of_a.count()], found + a.count());
  });
  std::int64_t ignored = 0, largest = 0;
  return a.spread(found, kMostOctaves<T>, ignored) ||
         b.spread(found + a.count(), limits.octaves, largest) || largest < limits.smallest;
}

}  // namespace

template <class T>
bool convolution_spreads(Grid& grid, const TensorRef& images, const TensorRef& weights) {
  return spreads<T>(grid, images, weights, {kMostOctavesOfWeights, kSmallestWeights});
}

template <class T>
bool weight_gradient_spreads(Grid& grid, const TensorRef& images, const TensorRef& gradient) {
  return spreads<T>(grid, images, gradient, {kMostOctaves<T>, 0});
}

template bool convolution_spreads<float>(Grid&, const TensorRef&, const TensorRef&);
template bool convolution_spreads<BFloat16>(Grid&, const TensorRef&, const TensorRef&);
template bool weight_gradient_spreads<float>(Grid&, const TensorRef&, const TensorRef&);
template bool weight_gradient_spreads<BFloat16>(Grid&, const TensorRef&, const TensorRef&);

}  // namespace loom::ops
