// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Batch norm's factors from running statistics of float32, in vectors. Thread: any; only what is
// passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

/// A number for each channel; `weight` and `bias` may be null.
struct FloatVectors {
  const float *weight, *bias, *running_mean, *running_var;
};

/// factors[c] = weight[c] / sqrt(running_var[c] + eps), shifts[c] = bias[c] - running_mean[c] *
/// factors[c], which is rounded once where ATen's kernel does that: the bits are the same with the
/// same instruction set. Requires: nothing overlaps what is written.
LOOM_SIMD_VERSIONS(factors_of_floats, void(std::int64_t channels, const FloatVectors& vectors,
                                           float eps, float* factors, float* shifts) noexcept);

}  // namespace loom::kernels::norm
