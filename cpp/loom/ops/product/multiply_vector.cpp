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

[[gnu::always_inline]] inline float sum_lanes(const Lanes& sums) {
  using Quarter [[gnu::vector_size(16)]] = float;
  Quarter quarters[4];
  std::memcpy(quarters, &sums, sizeof quarters);
  const Quarter quarter = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
  return (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
}

// One row after the other: memory that is read in its order comes from L2 twice as fast as from
// four places at a time. Several sums, so that they do not wait for each other.
template <class T>
[[gnu::always_inline]] inline void dot_rows(const T* vector, const T* matrix, std::int64_t stride,
                                            std::int64_t rows, std::int64_t inner, float* to) {
  constexpr std::int64_t kSums = 4;
  const std::int64_t whole = inner / kLanes * kLanes;
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = matrix + i * stride;
    Lanes sums[kSums] = {};
    const auto add = [&](std::int64_t k, Lanes& to_sum) {
      Lanes factor, element;
      load(vector + k, factor);
      load(row + k, element);
      to_sum += factor * element;
    };
    std::int64_t k = 0;
    for (; k + kSums * kLanes <= whole; k += kSums * kLanes) {
      for (std::int64_t s = 0; s < kSums; ++s) add(k + s * kLanes, sums[s]);
    }
    for (; k < whole; k += kLanes) add(k, sums[0]);
    float sum = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; k < inner; ++k) sum += static_cast<float>(vector[k]) * static_cast<float>(row[k]);
    to[i] = sum;
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

// Four rows of the matrix at a time for four vectors.
LOOM_ISA_CLONES void dot_four(const float* vectors, std::int64_t vector_stride,
                              const MatrixView<const float>& m, float* to, std::int64_t ld) {
  constexpr std::int64_t kRows = 4, kVectors = 4;
  const std::int64_t whole = m.columns / kLanes * kLanes;
  for (std::int64_t i = 0; i < m.rows; i += kRows) {
    const float* row[kRows];
    Lanes sums[kRows][kVectors] = {};
    for (std::int64_t r = 0; r < kRows; ++r) {
      row[r] = m.data + std::min(i + r, m.rows - 1) * m.row_stride;
    }
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      Lanes factors[kVectors];
      for (std::int64_t v = 0; v < kVectors; ++v) load(vectors + v * vector_stride + k, factors[v]);
      for (std::int64_t r = 0; r < kRows; ++r) {
        Lanes element;
        load(row[r] + k, element);
        for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] += factors[v] * element;
      }
    }
    for (std::int64_t r = 0; r < kRows && i + r < m.rows; ++r) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        float sum = sum_lanes(sums[r][v]);
        for (std::int64_t k = whole; k < m.columns; ++k) {
          sum += vectors[v * vector_stride + k] * row[r][k];
        }
        to[v * ld + i + r] = sum;
      }
    }
  }
}

}  // namespace

void multiply_vectors(const MatrixView<const float>& vectors, const MatrixView<const float>& matrix,
                      float* to, std::int64_t ld) {
  // Rows are taken in groups that stay in L2 while further vectors meet them.
  constexpr std::int64_t kGroup = 16;
  for (std::int64_t row = 0; row < matrix.rows; row += kGroup) {
    const auto group = matrix.part(row, 0, std::min(kGroup, matrix.rows - row), matrix.columns);
    std::int64_t v = 0;
    for (; v + 4 <= vectors.rows; v += 4) {
      dot_four(vectors.data + v * vectors.row_stride, vectors.row_stride, group, to + v * ld + row,
               ld);
    }
    for (; v < vectors.rows; ++v) {
      dot_rows_float(vectors.data + v * vectors.row_stride, group.data, group.row_stride,
                     group.rows, group.columns, to + v * ld + row);
    }
  }
}

template <>
void multiply_vector(const float* vector, const MatrixView<const float>& m, float* to) {
  dot_rows_float(vector, m.data, m.row_stride, m.rows, m.columns, to);
}
template <>
void multiply_vector(const BFloat16* vector, const MatrixView<const BFloat16>& m, float* to) {
  dot_rows_bfloat16(vector, m.data, m.row_stride, m.rows, m.columns, to);
}

}  // namespace loom::ops
