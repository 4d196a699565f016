// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/evaluation_factors.h"

#include <cmath>

namespace loom::kernels::norm::LOOM_SIMD {

// Plain loops: where square roots set no errno, the compiler makes vectors of them.
void factors_of_floats(std::int64_t channels, const FloatVectors& vectors, float eps,
                       float* __restrict factors, float* __restrict shifts) noexcept {
  const float* const variance = vectors.running_var;
  const float* const mean = vectors.running_mean;
  for (std::int64_t c = 0; c < channels; ++c) factors[c] = 1 / std::sqrt(variance[c] + eps);
  if (const float* const weight = vectors.weight) {
    for (std::int64_t c = 0; c < channels; ++c) factors[c] *= weight[c];
  }
  if (const float* const bias = vectors.bias) {
    for (std::int64_t c = 0; c < channels; ++c) shifts[c] = bias[c] - mean[c] * factors[c];
  } else {
    for (std::int64_t c = 0; c < channels; ++c) shifts[c] = 0 - mean[c] * factors[c];
  }
}

}  // namespace loom::kernels::norm::LOOM_SIMD
