// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/products.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

float product_of_lanes(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] *= lanes[lane + half];
  }
  return lanes[0];
}

/// So many vectors of columns, whose products stay in registers.
template <int kVectors, class T>
[[gnu::always_inline]] inline void multiply_columns(const T* from, std::int64_t rows,
                                                    std::int64_t stride, float* products) {
  Floats product[kVectors];
  for (Floats& each : product) each = all(1);
  for (std::int64_t row = 0; row < rows; ++row, from += stride) {
    for (int v = 0; v < kVectors; ++v) product[v] *= load(from + v * kLanes);
  }
  for (int v = 0; v < kVectors; ++v) store(products + v * kLanes, product[v]);
}

}  // namespace

template <class T>
float product_of(const T* from, std::int64_t count) noexcept {
  Floats chains[kChains];
  for (Floats& each : chains) each = all(1);
  for_vectors(count,
              [&](std::int64_t i, std::int64_t lanes, int chain)
                  __attribute__((always_inline)) { chains[chain] *= get(from, i, lanes, 1); });
  return product_of_lanes((chains[0] * chains[1]) * (chains[2] * chains[3]));
}

template <class T>
void products_of_columns(const T* from, std::int64_t rows, std::int64_t stride, float* products,
                         std::int64_t columns) noexcept {
  constexpr int kAtOnce = 4;
  std::int64_t c = 0;
  for (; c + kAtOnce * kLanes <= columns; c += kAtOnce * kLanes) {
    multiply_columns<kAtOnce>(from + c, rows, stride, products + c);
  }
  for (; c + kLanes <= columns; c += kLanes) {
    multiply_columns<1>(from + c, rows, stride, products + c);
  }
  if (c == columns) return;
  Floats product = all(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    product *= load_part(from + row * stride + c, columns - c, 1);
  }
  store_part(products + c, product, columns - c);
}

#define LOOM_INSTANTIATE(T)                                                       \
  template float product_of(const T*, std::int64_t) noexcept;                     \
  template void products_of_columns(const T*, std::int64_t, std::int64_t, float*, \
                                    std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
