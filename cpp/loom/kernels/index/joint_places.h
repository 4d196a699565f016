// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Places along several dimensions that lie side by side as places along the one that they are
// together. Thread: any.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::index {

/// One index of a dimension of `items`, whose next item is `step` places further. All indices of a
/// tensor have the same sizes; strides are in elements, and 0 where one is repeated.
template <class Index>
struct DimPlaces {
  const Index* index;
  const std::int64_t *sizes, *strides;
  std::int64_t dims, items, step;
};

LOOM_SIMD_DECLARE(template <class Index> bool add_places(const DimPlaces<Index>& dim,
                                                         std::int64_t begin, std::int64_t end,
                                                         std::int64_t* to) noexcept;)

/// add_places(dim, begin, end, to): adds what the index contributes to the places [begin, end),
/// counted through its sizes; `to` begins with place `begin`. Negative ones count from the
/// dimension's end. False if one is not there. Index: std::int32_t or std::int64_t.
template <class Index>
inline constexpr simd::Versions add_places{LOOM_SIMD_LIST(add_places<Index>)};

}  // namespace loom::kernels::index
