// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Steps of optimisers. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::optim {

/// One step of Adam or AdamW for some elements of a parameter (torch.optim.AdamW has the formulas).
struct AdamUpdate {
  float* parameter;
  const float* gradient;
  float *mean, *square;  ///< the running ones, which are updated
  float beta1, beta2, eps;
  float mean_weight, square_weight;  ///< of the gradient: 1 - beta1, 1 - beta2
  float step_size;                   ///< the learning rate over 1 - beta1^step
  float root_factor;                 ///< 1 / sqrt(1 - beta2^step)
  float decay;                       ///< of the parameter, by multiplication: 1 for none
  float gradient_decay;              ///< what of the parameter is added to the gradient
  bool maximize;
};

LOOM_SIMD_VERSIONS(adam, void(const AdamUpdate& update, std::int64_t count) noexcept);

}  // namespace loom::kernels::optim
