// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Normalisation of short rows, kTurnedRows at a time (kernels/norm/turned_norm.h): batch norm of
// one sample, as instance norm is of several, whose channels are rows, and rows of layer norm.

#include "loom/kernels/norm/numbers.h"
#include "loom/kernels/norm/turned_norm.h"
#include "loom/ops/recipes/rows/batch_norm.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops {

/// Batch norm in training of channels that have few elements together and no others. False, and
/// nothing happened, if the operands are not for this kernel. Thread: any.
[[nodiscard]] bool launch_channel_norm(const BatchNorm& norm, const at::Tensor& output,
                                       const at::Tensor& mean, const at::Tensor& invstd);

/// The gradients of those. Results that are undefined are not asked for.
[[nodiscard]] bool launch_channel_norm_gradient(const BatchNormGradient& norm,
                                                const at::Tensor& to_input,
                                                const at::Tensor& to_weight,
                                                const at::Tensor& to_bias);

/// Rows of so many elements take less time by themselves.
inline constexpr std::int64_t kLongestTurnedRow = 24;

/// Layer norm of dense rows [begin, end). Thread: a worker.
template <class T>
void normalise_short_rows(T* to, const T* from, std::int64_t begin, std::int64_t end,
                          std::int64_t columns, const float* factors, const float* terms,
                          double eps, const kernels::norm::Numbers& mean,
                          const kernels::norm::Numbers& rstd, T* room) {
  using namespace kernels::norm;
  TurnedStatistics found;
  for (std::int64_t row = begin; row < end; row += kTurnedRows) {
    const std::int64_t count = std::min(kTurnedRows, end - row);
    turn_rows(from + row * columns, count, columns, room);
    normalise_turned<T>(room, columns, {factors, terms, /*of_rows=*/false, eps}, found);
    turn_back(room, count, columns, to + row * columns);
    for (std::int64_t i = 0; i < count; ++i) {
      mean.write(row + i, found.mean[i]);
      rstd.write(row + i, found.rstd[i]);
    }
  }
}

}  // namespace loom::ops
