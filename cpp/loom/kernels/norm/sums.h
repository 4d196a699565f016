// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums of rows of float or a half type: those of batch norm, and those of everything. A few
// elements of each lane are added in float32, and such sums in double; the order of a sum follows
// from the lengths and the instruction set alone. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

LOOM_SIMD_DECLARE(
    template <class T> double sum_of_runs(const T* from, std::int64_t runs, std::int64_t stride,
                                          std::int64_t columns) noexcept;
    template <class T>
    void moment_sums_of_runs(const T* from, std::int64_t runs, std::int64_t stride,
                             std::int64_t columns, float shift, double* sums) noexcept;
    template <class T>
    void gradient_sums_of_runs(const T* grad, const T* from, std::int64_t runs, std::int64_t stride,
                               std::int64_t columns, float mean, double* sums) noexcept;
    template <class T> void add_rows(const T* from, std::int64_t rows, std::int64_t stride,
                                     float* sums, std::int64_t columns) noexcept;
    template <class T>
    void add_moments(const T* from, std::int64_t rows, std::int64_t stride, const float* shift,
                     float* sums, float* squares, std::int64_t columns) noexcept;
    template <class T> void add_gradients(const T* grad, const T* from, std::int64_t rows,
                                          std::int64_t stride, const float* means, float* sums,
                                          float* products, std::int64_t columns) noexcept;
    template <class T> double sum_of_numbers(const T* from, std::int64_t columns) noexcept;)

/// Sums over runs of `columns` elements that lie together, `runs` of them `stride` elements apart:
/// of the elements; (sums[0], sums[1]) of from - shift and its square; and of grad and
/// grad * (from - mean).
template <class T>
inline constexpr simd::Versions sum_of_runs{LOOM_SIMD_LIST(sum_of_runs<T>)};
template <class T>
inline constexpr simd::Versions moment_sums_of_runs{LOOM_SIMD_LIST(moment_sums_of_runs<T>)};
template <class T>
inline constexpr simd::Versions gradient_sums_of_runs{LOOM_SIMD_LIST(gradient_sums_of_runs<T>)};

/// Adds rows, `stride` elements apart, to the sums of their columns.
template <class T>
inline constexpr simd::Versions add_rows{LOOM_SIMD_LIST(add_rows<T>)};

/// What rows with an element of each channel, `stride` elements apart, add to the channels' sums:
/// from - shift and its square; grad and grad * (from - mean).
template <class T>
inline constexpr simd::Versions add_moments{LOOM_SIMD_LIST(add_moments<T>)};
template <class T>
inline constexpr simd::Versions add_gradients{LOOM_SIMD_LIST(add_gradients<T>)};

/// to[i] += from[i].
LOOM_SIMD_VERSIONS(add_to_doubles,
                   void(double* to, const float* from, std::int64_t count) noexcept);
LOOM_SIMD_VERSIONS(add_doubles, void(double* to, const double* from, std::int64_t count) noexcept);

/// The sum of all elements that are not NaN.
template <class T>
inline constexpr simd::Versions sum_of_numbers{LOOM_SIMD_LIST(sum_of_numbers<T>)};

}  // namespace loom::kernels::norm
