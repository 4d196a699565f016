// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Layer norm of a dense row and its gradient, in float32 whatever the elements are: float or
// simd::BFloat16. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

LOOM_SIMD_DECLARE(template <class T>
                  void layer_norm_row(T* to, const T* from, const float* weight, const float* bias,
                                      float* scratch, std::int64_t columns, double eps,
                                      float* statistics) noexcept;
                  template <class T>
                  void layer_norm_gradient_row(T* to, const T* grad, const T* from,
                                               const float* weight, std::int64_t columns,
                                               const float* statistics, float* weight_gradient,
                                               float* bias_gradient) noexcept;)

/// to = (from - mean) * rstd * weight + bias; `statistics` gets mean and rstd. Scratch: room for
/// the row and a vector more.
template <class T>
inline constexpr simd::Versions layer_norm_row{LOOM_SIMD_LIST(layer_norm_row<T>)};

/// Adds the row's share to the gradients of the parameters, unless both are null; nor is the row's
/// own gradient made for null.
template <class T>
inline constexpr simd::Versions layer_norm_gradient_row{LOOM_SIMD_LIST(layer_norm_gradient_row<T>)};

}  // namespace loom::kernels::norm
