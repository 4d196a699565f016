// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which matrices are factorised on all cores. Thread: any.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace loom::ops {

/// Whether the factorisation of a matrix is shared by the cores: from so many rows and columns on
/// there are four panels and as many slices (kPanel in factorizations.cpp). A batch of smaller ones
/// is shared by its matrices.
inline bool is_large_matrix(const at::Tensor& matrix) {
  constexpr std::int64_t kLargeSide = 256;
  if (matrix.scalar_type() != c10::kFloat && matrix.scalar_type() != c10::kDouble) return false;
  if (matrix.dim() < 2 || matrix.numel() == 0) return false;
  const std::int64_t batch = matrix.numel() / (matrix.size(-1) * matrix.size(-2));
  return std::min(matrix.size(-1), matrix.size(-2)) >= kLargeSide * batch;
}

}  // namespace loom::ops
