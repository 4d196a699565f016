// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Attention of a few queries, as decoding has it: keys and values are used where they lie, and read
// once for all queries that see them. What one call made of some keys is a part; parts of the same
// query are put together by combine_parts(). In float32 whatever the elements are (float,
// simd::BFloat16, simd::Half). Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <algorithm>
#include <cstdint>

namespace loom::kernels::attention {

/// Keys that are looked at together: no fewer than the floats of the widest vector.
inline constexpr std::int64_t kKeyGroup = 16;

/// Floats of a query, of a row of results or of scores are padded to multiples of this.
[[nodiscard]] constexpr std::int64_t padded_row(std::int64_t elements) noexcept {
  return (elements + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
}

/// What a part knows of a query: the sums of weighted values (padded), then the largest score and
/// the sum of the weights.
[[nodiscard]] constexpr std::int64_t part_floats(std::int64_t elements) noexcept {
  return padded_row(elements) + kKeyGroup;
}

/// Some queries (rows), and some keys and values that all of them may see.
template <class T>
struct FewQueries {
  std::int64_t rows, elements;
  const float* queries;  ///< padded_row(elements) each, with zeros after the elements
  const T* keys;
  std::int64_t key_stride;
  const T* values;
  std::int64_t value_stride;
  std::int64_t count;           ///< of keys
  const std::int64_t* visible;  ///< how many of the keys each row sees, from the first on
  const T* const* masks;        ///< for each row what is added to its scores; or null
  float scale;                  ///< of the products
  float* scores;                ///< room for `rows` times padded_row(count)
  float* parts;                 ///< for each row part_floats(elements), which are written
};

LOOM_SIMD_DECLARE(template <class T> void attend_part(const FewQueries<T>& problem) noexcept;
                  template <class T>
                  void combine_parts(T* to, const float* parts, std::int64_t part_stride,
                                     std::int64_t count, std::int64_t elements,
                                     float* log_sum) noexcept;
                  template <class T> bool hides_all(const T* mask, std::int64_t count) noexcept;)

template <class T>
inline constexpr simd::Versions attend_part{LOOM_SIMD_LIST(attend_part<T>)};

/// The row of the result that `count` parts make, `part_stride` floats apart, and the logarithm of
/// the sum of its weights; 0 for a query that sees nothing.
template <class T>
inline constexpr simd::Versions combine_parts{LOOM_SIMD_LIST(combine_parts<T>)};

/// Whether all of `count` elements are minus infinity.
template <class T>
inline constexpr simd::Versions hides_all{LOOM_SIMD_LIST(hides_all<T>)};

/// The keys [first, last) of `count` that are left when masks hide the others, from the last or the
/// first one on, from all rows: a cache that is not full, and windows over it. Whole groups, and
/// one of them at least.
struct KeyRange {
  std::int64_t first, last;
};
template <class T>
[[nodiscard]] KeyRange keys_seen(const T* const* masks, std::int64_t rows, std::int64_t count) {
  const auto hidden = [&](std::int64_t key, std::int64_t end) {
    return std::all_of(masks, masks + rows,
                       [&](const T* mask) { return hides_all<T>(mask + key, end - key); });
  };
  KeyRange seen{0, count};
  const auto last_group = [&] { return (seen.last - 1) / kKeyGroup * kKeyGroup; };
  while (seen.last > kKeyGroup && hidden(last_group(), seen.last)) seen.last = last_group();
  while (seen.first + kKeyGroup < seen.last && hidden(seen.first, seen.first + kKeyGroup)) {
    seen.first += kKeyGroup;
  }
  return seen;
}

}  // namespace loom::kernels::attention
