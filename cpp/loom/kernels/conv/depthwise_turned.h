// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Depthwise convolutions of small planes that lie turned: the elements of kTurnedChannels planes at
// a pixel are side by side, so that vectors are full however short rows are, and taps that see
// nothing of the image are left out. Elements are float or simd::BFloat16, sums float. Thread: any;
// only what is passed is touched.

#include "loom/kernels/conv/windows.h"
#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::conv {

inline constexpr std::int64_t kTurnedChannels = 16;

#define LOOM_DEPTHWISE_TURNED(T)                                                 \
  void depthwise_turned(const T* image, const float* weights, const float* bias, \
                        const WindowAxis& y, const WindowAxis& x, T* to) noexcept;
LOOM_SIMD_DECLARE(LOOM_DEPTHWISE_TURNED(float) LOOM_DEPTHWISE_TURNED(simd::BFloat16))
#undef LOOM_DEPTHWISE_TURNED

/// The padding may be negative. Pixels in the order in which they lie, of kTurnedChannels elements
/// each; so are weights, by taps.
template <class T>
inline constexpr simd::Versions<void(const T* image, const float* weights, const float* bias,
                                     const WindowAxis& y, const WindowAxis& x, T* to) noexcept>
    depthwise_turned{LOOM_SIMD_LIST(depthwise_turned)};

}  // namespace loom::kernels::conv
