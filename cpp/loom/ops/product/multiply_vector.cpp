// SPDX-License-Identifier: BSD-3-Clause
// Inner products of a vector with the rows of a matrix: as fast as memory is.
#include "loom/ops/product/multiply.h"
#include "loom/ops/random/isa_clones.h"

#include <algorithm>
#include <cstring>

namespace loom::ops {
namespace {

using c10::BFloat16;

constexpr std::int64_t kLanes = 16;
using Lanes [[gnu::vector_size(64)]] = float;
using Halves [[gnu::vector_size(32)]] = std::uint16_t;
using Words [[gnu::vector_size(64)]] = std::uint32_t;

[[gnu::always_inline]] inline void load(const float* from, Lanes& to) {
  std::memcpy(&to, from, sizeof to);
}
[[gnu::always_inline]] inline void load(const BFloat16* from, Lanes& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

// Four rows at a time, so that sums do not wait for each other.
template <class T>
[[gnu::always_inline]] inline void dot_rows(const T* vector, const T* matrix, std::int64_t stride,
                                            std::int64_t rows, std::int64_t inner, float* to) {
  constexpr std::int64_t kRows = 4;
  const std::int64_t whole = inner / kLanes * kLanes;
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const T* row[kRows];
    Lanes sums[kRows] = {};
    for (std::int64_t r = 0; r < kRows; ++r) {
      row[r] = matrix + std::min(i + r, rows - 1) * stride;
    }
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      Lanes factor, element;
      load(vector + k, factor);
      for (std::int64_t r = 0; r < kRows; ++r) {
        load(row[r] + k, element);
        sums[r] += factor * element;
      }
    }
    for (std::int64_t r = 0; r < kRows && i + r < rows; ++r) {
      float sum = 0;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += sums[r][lane];
      for (std::int64_t k = whole; k < inner; ++k) {
        sum += static_cast<float>(vector[k]) * static_cast<float>(row[r][k]);
      }
      to[i + r] = sum;
    }
  }
}

LOOM_ISA_CLONES void dot_rows_float(const float* vector, const float* matrix, std::int64_t stride,
                                    std::int64_t rows, std::int64_t inner, float* to) {
  dot_rows(vector, matrix, stride, rows, inner, to);
}
LOOM_ISA_CLONES void dot_rows_bfloat16(const BFloat16* vector, const BFloat16* matrix,
                                       std::int64_t stride, std::int64_t rows, std::int64_t inner,
                                       float* to) {
  dot_rows(vector, matrix, stride, rows, inner, to);
}

}  // namespace

template <>
void multiply_vector(const float* vector, const MatrixView<const float>& m, float* to) {
  dot_rows_float(vector, m.data, m.row_stride, m.rows, m.columns, to);
}
template <>
void multiply_vector(const BFloat16* vector, const MatrixView<const BFloat16>& m, float* to) {
  dot_rows_bfloat16(vector, m.data, m.row_stride, m.rows, m.columns, to);
}

}  // namespace loom::ops
