// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a reduction over ranks does with the elements that lie at the same place on each: they are
// combined in the order of the ranks, so that the result is the same bits however the data came
// here, and however it was cut. Half types are combined in float32 and rounded once.
// Thread: any.

#include "loom/simd/versions.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace loom::collectives {

enum class Element : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
};

enum class Reduction : std::uint8_t {
  kSum,
  kProduct,
  kMin,  ///< a NaN stays
  kMax,  ///< a NaN stays
  kAnd,  ///< of bits, as the next two: integers only
  kOr,
  kXor,
  kAverage,    ///< the sum divided by the number of ranks; of integers towards zero
  kScaledSum,  ///< the sum of elements that are multiplied by a factor first
};

struct Combination {
  Element element = Element::kFloat32;
  Reduction reduction = Reduction::kSum;
  double factor = 1;  ///< of kScaledSum
};

/// A number that tells ways to combine apart.
[[nodiscard]] inline std::uint64_t number_of(const Combination& how) noexcept {
  const auto factor = std::bit_cast<std::uint64_t>(how.factor) * 1099511628211U;
  return factor ^ (static_cast<std::uint64_t>(how.element) << 8 |
                   static_cast<std::uint64_t>(how.reduction) << 1 | 1U);
}

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(Element element) noexcept {
  switch (element) {
    case Element::kFloat64:
    case Element::kInt64:
    case Element::kUInt64:
      return 8;
    case Element::kFloat32:
    case Element::kInt32:
    case Element::kUInt32:
      return 4;
    case Element::kInt8:
    case Element::kUInt8:
      return 1;
    default:
      return 2;
  }
}

/// to[i] = the combination of sources[0][i], ..., sources[ranks - 1][i], for i in [0, count).
/// `to` may be one of the sources. Integers wrap around.
/// Requires: ranks > 0; no kAnd, kOr, kXor of floating-point numbers.
LOOM_SIMD_VERSIONS(combine, void(void* to, const void* const* sources, int ranks,
                                 std::int64_t count, const Combination& how) noexcept);

}  // namespace loom::collectives
