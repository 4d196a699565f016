// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Rows of pixels made from others. Weights and pixels are float32; `to` overlaps with nothing else.
// Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::pool_resample {

/// to[i] = from[place[i]].
LOOM_SIMD_VERSIONS(take_elements, void(const std::int32_t* place, const float* from,
                                       std::int64_t count, float* to) noexcept);

/// Elements of a row, and what each of them counts.
struct Weighted {
  const std::int32_t* place;
  const float* weight;
};

/// to[i] = from[a.place[i]] * a.weight[i] + the same of b.
LOOM_SIMD_VERSIONS(mix_elements, void(const Weighted& a, const Weighted& b, const float* from,
                                      std::int64_t count, float* to) noexcept);

/// to[i] = the sum over s < `most` of from[place[s * count + i]] * weight[s * count + i].
LOOM_SIMD_VERSIONS(sum_shares, void(const Weighted& shares, std::int64_t most, const float* from,
                                    std::int64_t count, float* to) noexcept);

}  // namespace loom::kernels::pool_resample
