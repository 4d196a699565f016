// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where the least or the largest of some numbers is: the first of equal ones, and the first NaN
// before all others. Numbers are float or a half type. Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

LOOM_SIMD_DECLARE(template <class T> std::int64_t extremum_place(const T* from, std::int64_t count,
                                                                 bool largest) noexcept;)
LOOM_SIMD_DECLARE(template <class T> void extremum_places(const T* from, std::int64_t pitch,
                                                          std::int64_t rows, std::int64_t columns,
                                                          bool largest,
                                                          std::int64_t* places) noexcept;)

/// In a row. Requires: count > 0.
template <class T>
inline constexpr simd::Versions extremum_place{LOOM_SIMD_LIST(extremum_place<T>)};

/// In each column of rows that are `pitch` elements apart. Requires: 0 < rows < 2^31.
template <class T>
inline constexpr simd::Versions extremum_places{LOOM_SIMD_LIST(extremum_places<T>)};

}  // namespace loom::kernels::norm
