// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of float, simd::BFloat16 or simd::Half to float32, exactly, and from it to the nearest.
// Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels {

LOOM_SIMD_DECLARE(
    template <class T> void widen_row(float* to, const T* from, std::int64_t count) noexcept;
    template <class T> void round_row(T* to, const float* from, std::int64_t count) noexcept;
    template <class T>
    void scale_row(T* to, const float* from, const T* factors, std::int64_t count) noexcept;
    template <class T> void multiply_row(T* row, float by, std::int64_t count) noexcept;
    template <class T> void divide_row(T* row, float by, std::int64_t count) noexcept;)

template <class T>
inline constexpr simd::Versions widen_row{LOOM_SIMD_LIST(widen_row<T>)};
template <class T>
inline constexpr simd::Versions round_row{LOOM_SIMD_LIST(round_row<T>)};
/// Each element times its factor.
template <class T>
inline constexpr simd::Versions scale_row{LOOM_SIMD_LIST(scale_row<T>)};
/// Each element by a number, rounded once.
template <class T>
inline constexpr simd::Versions multiply_row{LOOM_SIMD_LIST(multiply_row<T>)};
template <class T>
inline constexpr simd::Versions divide_row{LOOM_SIMD_LIST(divide_row<T>)};

/// Whole numbers, which bfloat16 has exactly.
LOOM_SIMD_VERSIONS(widen_bytes,
                   void(simd::BFloat16* to, const std::int8_t* from, std::int64_t count) noexcept);

}  // namespace loom::kernels
