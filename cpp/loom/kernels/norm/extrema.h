// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The least and the largest of some numbers, float or a half type. Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

LOOM_SIMD_DECLARE(template <class T> void extrema(const T* from, std::int64_t count, float* least,
                                                  float* most) noexcept;)

/// Both are NaN if one of the numbers is. Requires: count > 0.
template <class T>
inline constexpr simd::Versions extrema{LOOM_SIMD_LIST(extrema<T>)};

}  // namespace loom::kernels::norm
