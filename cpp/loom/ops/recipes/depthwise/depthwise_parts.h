// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What depthwise convolutions in both layouts and directions have in common. Thread: the worker.

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace loom::ops {

/// Multiply-adds of vectors that a block has, in about 50 us, and those that are worth another
/// core. An element of the images or the result counts as some, for it is moved.
inline constexpr double kDepthwiseBlock = 400e3, kLeastDepthwiseBlock = 150e3;
inline constexpr double kDepthwiseMove = 4;

/// How many blocks so much work is cut into: a power of two, as the number of cores mostly is.
inline std::int64_t depthwise_blocks(double work) {
  if (work < 2 * kLeastDepthwiseBlock) return 1;
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(work / kDepthwiseBlock, 2.0))));
}

/// Calls function(T()) for the dtype of float or simd::BFloat16.
template <class Function>
void with_depthwise_type(c10::ScalarType dtype, Function&& function) {
  if (dtype == c10::ScalarType::Float) {
    function(float());
  } else {
    function(simd::BFloat16());
  }
}

}  // namespace loom::ops
