// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/dot_rows.h"

#include "loom/simd/floats.h"

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

// One row after the other: memory that is read in its order comes from L2 twice as fast as from
// four places at a time. Several sums, so that they do not wait for each other.
template <class T>
[[gnu::always_inline]] inline void dot_each(const T* vector, const T* matrix, std::int64_t stride,
                                            std::int64_t rows, std::int64_t inner, float* to) {
  constexpr std::int64_t kSums = 4;
  const std::int64_t whole = inner / kLanes * kLanes;
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = matrix + i * stride;
    Floats sums[kSums] = {};
    const auto add = [&](std::int64_t k, Floats& to_sum) {
      to_sum += load(vector + k) * load(row + k);
    };
    std::int64_t k = 0;
    for (; k + kSums * kLanes <= whole; k += kSums * kLanes) {
      for (std::int64_t s = 0; s < kSums; ++s) add(k + s * kLanes, sums[s]);
    }
    for (; k < whole; k += kLanes) add(k, sums[0]);
    float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; k < inner; ++k) sum += simd::widen(vector[k]) * simd::widen(row[k]);
    to[i] = sum;
  }
}

}  // namespace

void dot_rows(const float* vector, const float* matrix, std::int64_t stride, std::int64_t rows,
              std::int64_t inner, float* to) noexcept {
  dot_each(vector, matrix, stride, rows, inner, to);
}
void dot_rows(const simd::BFloat16* vector, const simd::BFloat16* matrix, std::int64_t stride,
              std::int64_t rows, std::int64_t inner, float* to) noexcept {
  dot_each(vector, matrix, stride, rows, inner, to);
}

void dot_rows(const simd::Half* vector, const simd::Half* matrix, std::int64_t stride,
              std::int64_t rows, std::int64_t inner, float* to) noexcept {
  dot_each(vector, matrix, stride, rows, inner, to);
}

// Some rows of the matrix at a time for four vectors.
void dot_four(const float* vectors, std::int64_t vector_stride, const float* matrix,
              std::int64_t stride, std::int64_t rows, std::int64_t inner, float* to,
              std::int64_t ld) noexcept {
  // As many sums as there are registers for.
  constexpr std::int64_t kRows = simd::kVectorBytes == 64 ? 4 : 2, kVectors = 4;
  const std::int64_t whole = inner / kLanes * kLanes;
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const float* row[kRows];
    Floats sums[kRows][kVectors] = {};
    for (std::int64_t r = 0; r < kRows; ++r) {
      row[r] = matrix + (i + r < rows ? i + r : rows - 1) * stride;
    }
    for (std::int64_t k = 0; k < whole; k += kLanes) {
      Floats factors[kVectors];
      for (std::int64_t v = 0; v < kVectors; ++v)
        factors[v] = load(vectors + v * vector_stride + k);
      for (std::int64_t r = 0; r < kRows; ++r) {
        const Floats element = load(row[r] + k);
        for (std::int64_t v = 0; v < kVectors; ++v) sums[r][v] += factors[v] * element;
      }
    }
    for (std::int64_t r = 0; r < kRows && i + r < rows; ++r) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        float sum = sum_of(sums[r][v]);
        for (std::int64_t k = whole; k < inner; ++k) {
          sum += vectors[v * vector_stride + k] * row[r][k];
        }
        to[v * ld + i + r] = sum;
      }
    }
  }
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
