// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Gates of bfloat16 with their biases, in float32, as steps of cells take them (cell.h). Thread:
// any; only what is passed is touched.

#include "loom/kernels/recurrent/cell.h"
#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::recurrent {

/// Some units of all gates; strides are from gate to gate. Bias: float or simd::BFloat16.
template <class Bias>
struct GateSums {
  std::int64_t rows, gates, units;
  RowSpan<const simd::BFloat16> from;
  std::int64_t from_stride;
  const Bias* bias;  ///< the same for all rows
  std::int64_t bias_stride;
  RowSpan<float> to;
  std::int64_t to_stride;
};

LOOM_SIMD_DECLARE(template <class Bias> void add_biases(const GateSums<Bias>& sums) noexcept;)

template <class Bias>
inline constexpr simd::Versions add_biases{LOOM_SIMD_LIST(add_biases<Bias>)};

}  // namespace loom::kernels::recurrent
