// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The largest of some numbers. Thread: any.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

#define LOOM_LARGEST(T) T largest(const T* values, std::int64_t count) noexcept;
LOOM_SIMD_DECLARE(LOOM_LARGEST(float) LOOM_LARGEST(double))
#undef LOOM_LARGEST

/// Requires: count > 0. A NaN counts for nothing, unless it is the first value. T: float, double.
template <class T>
inline constexpr simd::Versions<T(const T* values, std::int64_t count) noexcept> largest{
    LOOM_SIMD_LIST(largest)};

}  // namespace loom::kernels::norm
