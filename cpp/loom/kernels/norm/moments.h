// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums, means and variances of many numbers, whatever their size: where sums in float32 leave its
// range, they are made again in double. T: float or a half type. Thread: any.

#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::norm {

/// Of all elements, or of those that are not NaN.
template <class T>
[[nodiscard]] double total(const T* from, std::int64_t count, bool of_numbers) noexcept;

struct Moments {
  double count = 0, mean = 0, squares = 0;  ///< of the distances from the mean
};

template <class T>
[[nodiscard]] Moments moments(const T* from, std::int64_t count) noexcept;

/// Of `runs` runs of `columns` elements together, `stride` elements apart, one after the other in
/// double: right wherever sums of squares in float32 are not.
template <class T>
[[nodiscard]] Moments wide_moments(const T* from, std::int64_t runs, std::int64_t stride,
                                   std::int64_t columns) noexcept;

/// The same by a sum and then a sum of squares, as ATen's batch norm has it: the mean of elements
/// of which one is infinite is infinite.
template <class T>
[[nodiscard]] Moments wide_moments_of_sums(const T* from, std::int64_t runs, std::int64_t stride,
                                           std::int64_t columns) noexcept;

/// The same of `channels` columns that lie side by side, of one element in each of `rows` rows that
/// are `stride` elements apart: found[0] to found[channels - 1].
template <class T>
void wide_moments_of_columns(const T* from, std::int64_t rows, std::int64_t stride,
                             std::int64_t channels, Moments* found) noexcept;

/// True if a sum of so many squares in float32 left the range, or lost digits that count beside
/// `eps`, which is added to the variance.
[[nodiscard]] bool needs_wide_moments(double squares, double count, double eps = 0) noexcept;

/// Both together, by the formula of Chan et al. An infinite mean of `a` makes it NaN, as in ATen.
[[nodiscard]] Moments merged(const Moments& a, const Moments& b) noexcept;

}  // namespace loom::kernels::norm
