// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What an LSTM does element by element, for rows of a batch and some of their units, in float32.
// Gates are input, forget, cell, output, `hidden` elements apart, as PyTorch's weights have them.
// Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::recurrent {

/// Units that are computed at once, and the sums that they need: a vector of each gate.
inline constexpr std::int64_t kGroup = 16;
inline constexpr std::int64_t kGates = 4;
inline constexpr std::int64_t kGroupSums = kGates * kGroup;

/// A step of up to kGroup units. Rows lie `*_stride` elements apart.
struct LstmStep {
  std::int64_t rows, units, hidden;
  const float* sums;  ///< rows x kGroupSums: the weighted last state, gate after gate
  float* gates;       ///< in: the weighted input with biases; out, if `keeps`: activated gates
  const float* cell_before;
  float* cell_after;  ///< may be cell_before
  float* state;       ///< the new hidden state, `hidden` elements from row to row
  float* output;      ///< the same
  std::int64_t output_stride;
  bool keeps;
};
LOOM_SIMD_VERSIONS(lstm_step, void(const LstmStep& step) noexcept);

/// The gradient of a step for any number of units.
struct LstmStepGradient {
  std::int64_t rows, units, hidden;
  const float* sums;  ///< the gradient that comes from the step after, or null
  std::int64_t sums_stride;
  const float* output_grad;  ///< another part of the gradient of the hidden state, or null
  std::int64_t output_grad_stride;
  const float* gates;  ///< activated
  const float *cell_before, *cell_after;
  float* cell_grad;  ///< in: of the cell's state after the step; out: of that before it
  float* gates_grad;
};
LOOM_SIMD_VERSIONS(lstm_step_gradient, void(const LstmStepGradient& step) noexcept);

}  // namespace loom::kernels::recurrent
