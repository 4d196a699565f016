// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/weighted_rows.h"

#include "loom/simd/float_loops.h"

#include <utility>

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// So many rows for each time that the sums are loaded and stored.
template <int kRows, class T>
[[gnu::always_inline]] inline void add_rows(const T* from, std::int64_t row_stride,
                                            const float* weights, std::int64_t columns,
                                            float* sums) {
  Floats weight[kRows];
  for (int r = 0; r < kRows; ++r) weight[r] = all(weights[r]);
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        Floats sum = get(sums, i, count, 0);
        for (int r = 0; r < kRows; ++r) sum += weight[r] * get(from + r * row_stride, i, count, 0);
        put(sums, i, count, sum);
      });
}

/// A loop that the compiler makes vectors of.
template <int kRows>
[[gnu::always_inline]] inline void add_rows(const double* from, std::int64_t row_stride,
                                            const double* weights, std::int64_t columns,
                                            double* __restrict sums) {
  for (std::int64_t c = 0; c < columns; ++c) {
    double sum = sums[c];
    for (int r = 0; r < kRows; ++r) sum += weights[r] * from[r * row_stride + c];
    sums[c] = sum;
  }
}

}  // namespace

template <class T>
void add_weighted_rows(const T* from, std::int64_t row_stride, const WeightedSum<T>* weights,
                       std::int64_t rows, std::int64_t columns, WeightedSum<T>* sums) noexcept {
  constexpr int kRows = 8;
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    add_rows<kRows>(from + row * row_stride, row_stride, weights + row, columns, sums);
  }
  const auto rest = [&]<int... kCount>(std::integer_sequence<int, kCount...>) {
    ((rows - row == kCount + 1
          ? add_rows<kCount + 1>(from + row * row_stride, row_stride, weights + row, columns, sums)
          : void()),
     ...);
  };
  rest(std::make_integer_sequence<int, kRows - 1>{});
}

#define LOOM_INSTANTIATE(T)                                                                    \
  template void add_weighted_rows(const T*, std::int64_t, const WeightedSum<T>*, std::int64_t, \
                                  std::int64_t, WeightedSum<T>*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
LOOM_INSTANTIATE(double)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::gemm::LOOM_SIMD
