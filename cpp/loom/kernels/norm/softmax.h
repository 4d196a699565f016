// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Softmax and log-softmax of a dense row and their gradients, in float32 whatever the elements are:
// float or a half type. `to` may be what it is made from. Thread: any; only what is passed is
// touched.

#include "loom/kernels/norm/turned_rows.h"
#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

LOOM_SIMD_DECLARE(
    template <class T>
    void softmax_row(T* to, const T* from, float* scratch, std::int64_t columns) noexcept;
    template <class T>
    void log_softmax_row(T* to, const T* from, float* scratch, std::int64_t columns) noexcept;
    template <class T>
    void softmax_gradient_row(T* to, const T* grad, const T* output, std::int64_t columns) noexcept;
    template <class T> void log_softmax_gradient_row(T* to, const T* grad, const T* output,
                                                     std::int64_t columns) noexcept;
    template <class T> void softmax_turned(T* values, float* scratch, std::int64_t columns,
                                           float* maxima, float* sums) noexcept;
    template <class T> void log_softmax_turned(T* values, std::int64_t columns) noexcept;)

/// softmax_row(to, from, scratch, columns): to[i] = exp(from[i] - maximum) / sum. Scratch: room for
/// the row and a vector more.
template <class T>
inline constexpr simd::Versions softmax_row{LOOM_SIMD_LIST(softmax_row<T>)};

/// The same arguments: to[i] = from[i] - maximum - log(sum of exp(from[i] - maximum)).
template <class T>
inline constexpr simd::Versions log_softmax_row{LOOM_SIMD_LIST(log_softmax_row<T>)};

/// softmax_gradient_row(to, grad, output, columns): to[i] = (grad[i] - grad . output) * output[i].
template <class T>
inline constexpr simd::Versions softmax_gradient_row{LOOM_SIMD_LIST(softmax_gradient_row<T>)};

/// The same arguments: to[i] = grad[i] - exp(output[i]) * sum of grad.
template <class T>
inline constexpr simd::Versions log_softmax_gradient_row{
    LOOM_SIMD_LIST(log_softmax_gradient_row<T>)};

/// The same of rows that are turned (turned_rows.h), in place. softmax_turned(values, scratch,
/// columns, maxima, sums): scratch takes `columns` vectors; each row's maximum and the sum of exp(x
/// - maximum) are given as well.
template <class T>
inline constexpr simd::Versions softmax_turned{LOOM_SIMD_LIST(softmax_turned<T>)};
template <class T>
inline constexpr simd::Versions log_softmax_turned{LOOM_SIMD_LIST(log_softmax_turned<T>)};

}  // namespace loom::kernels::norm
