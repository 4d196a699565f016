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

// Four rows of the matrix at a time for kVectors vectors.
template <int kVectors>
[[gnu::always_inline]] inline void dot_vectors(const float* vectors, std::int64_t vector_stride,
                                               const MatrixView<const float>& m, float* to,
                                               std::int64_t ld) {
  constexpr std::int64_t kRows = 4;
  const std::int64_t whole = m.columns / kLanes * kLanes;
  for (std::int64_t i = 0; i < m.rows; i += kRows) {
    const float* row[kRows];
    Lanes sums[kRows][kVectors] = {};
    for (std::int64_t r = 0; r < kRows; ++r) {
      row[r] = m.data + std::min(i + r, m.rows - 1) * m.row_stride;
    }
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      Lanes factors[kVectors];
      for (int v = 0; v < kVectors; ++v) load(vectors + v * vector_stride + k, factors[v]);
      for (std::int64_t r = 0; r < kRows; ++r) {
        Lanes element;
        load(row[r] + k, element);
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factors[v] * element;
      }
    }
    for (std::int64_t r = 0; r < kRows && i + r < m.rows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        float sum = 0;
        for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += sums[r][v][lane];
        for (std::int64_t k = whole; k < m.columns; ++k) {
          sum += vectors[v * vector_stride + k] * row[r][k];
        }
        to[v * ld + i + r] = sum;
      }
    }
  }
}

LOOM_ISA_CLONES void dot_four(const float* vectors, std::int64_t stride,
                              const MatrixView<const float>& m, float* to, std::int64_t ld) {
  dot_vectors<4>(vectors, stride, m, to, ld);
}
LOOM_ISA_CLONES void dot_one(const float* vectors, std::int64_t stride,
                             const MatrixView<const float>& m, float* to, std::int64_t ld) {
  dot_vectors<1>(vectors, stride, m, to, ld);
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
      dot_one(vectors.data + v * vectors.row_stride, vectors.row_stride, group, to + v * ld + row,
              ld);
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
