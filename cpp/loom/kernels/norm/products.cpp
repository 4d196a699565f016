// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/products.h"

#include "loom/simd/float_loops.h"

#include <cstring>
#include <type_traits>

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// Vectors of numbers of 64 bits. Integers wrap around.
template <class T>
using Wide [[gnu::vector_size(simd::kVectorBytes)]] =
    std::conditional_t<std::is_same_v<T, double>, double, std::uint64_t>;

/// The first `count` elements; the others are 1.
template <class T>
[[gnu::always_inline]] inline Wide<T> load_wide(const T* from, std::int64_t count) {
  Wide<T> value = Wide<T>{} + 1;
  std::memcpy(&value, from, static_cast<std::size_t>(count) * sizeof(T));
  return value;
}

/// How rows of T become vectors: as floats, or as they are.
template <class T>
struct Vectors {
  using Vector = Floats;
  static constexpr std::int64_t kCount = kLanes;
  static Vector ones() { return all(1); }
  static Vector whole(const T* from) { return load(from); }
  static Vector part(const T* from, std::int64_t count) { return load_part(from, count, 1); }
  static void put(float* to, Vector value) { store(to, value); }
  static void put_part(float* to, Vector value, std::int64_t n) { store_part(to, value, n); }
};
template <class T>
  requires(sizeof(T) == 8)
struct Vectors<T> {
  using Vector = Wide<T>;
  static constexpr std::int64_t kCount = simd::kVectorBytes / sizeof(T);
  static Vector ones() { return Vector{} + 1; }
  static Vector whole(const T* from) { return load_wide(from, kCount); }
  static Vector part(const T* from, std::int64_t count) { return load_wide(from, count); }
  static void put(T* to, Vector value) { std::memcpy(to, &value, sizeof value); }
  static void put_part(T* to, Vector value, std::int64_t count) {
    std::memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(T));
  }
};

template <class T>
Product<T> product_of_lanes(typename Vectors<T>::Vector value) {
  constexpr std::int64_t kCount = Vectors<T>::kCount;
  std::remove_reference_t<decltype(value[0])> lanes[kCount];
  std::memcpy(lanes, &value, sizeof lanes);
  for (std::int64_t half = kCount / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] *= lanes[lane + half];
  }
  return static_cast<Product<T>>(lanes[0]);
}

/// So many vectors of columns, whose products stay in registers.
template <int kVectors, class T>
[[gnu::always_inline]] inline void multiply_columns(const T* from, std::int64_t rows,
                                                    std::int64_t stride, Product<T>* products) {
  using V = Vectors<T>;
  typename V::Vector product[kVectors];
  for (auto& each : product) each = V::ones();
  for (std::int64_t row = 0; row < rows; ++row, from += stride) {
    for (int v = 0; v < kVectors; ++v) product[v] *= V::whole(from + v * V::kCount);
  }
  for (int v = 0; v < kVectors; ++v) V::put(products + v * V::kCount, product[v]);
}

}  // namespace

template <class T>
Product<T> product_of(const T* from, std::int64_t count) noexcept {
  using V = Vectors<T>;
  typename V::Vector chains[kChains];
  for (auto& each : chains) each = V::ones();
  std::int64_t i = 0;
  for (; i + kChains * V::kCount <= count; i += kChains * V::kCount) {
    for (int chain = 0; chain < kChains; ++chain) {
      chains[chain] *= V::whole(from + i + chain * V::kCount);
    }
  }
  for (; i + V::kCount <= count; i += V::kCount) chains[0] *= V::whole(from + i);
  if (i < count) chains[1] *= V::part(from + i, count - i);
  return product_of_lanes<T>((chains[0] * chains[1]) * (chains[2] * chains[3]));
}

template <class T>
void products_of_columns(const T* from, std::int64_t rows, std::int64_t stride,
                         Product<T>* products, std::int64_t columns) noexcept {
  using V = Vectors<T>;
  constexpr int kAtOnce = 4;
  std::int64_t c = 0;
  for (; c + kAtOnce * V::kCount <= columns; c += kAtOnce * V::kCount) {
    multiply_columns<kAtOnce>(from + c, rows, stride, products + c);
  }
  for (; c + V::kCount <= columns; c += V::kCount) {
    multiply_columns<1>(from + c, rows, stride, products + c);
  }
  if (c == columns) return;
  auto product = V::ones();
  for (std::int64_t row = 0; row < rows; ++row) {
    product *= V::part(from + row * stride + c, columns - c);
  }
  V::put_part(products + c, product, columns - c);
}

#define LOOM_INSTANTIATE(T)                                                            \
  template Product<T> product_of(const T*, std::int64_t) noexcept;                     \
  template void products_of_columns(const T*, std::int64_t, std::int64_t, Product<T>*, \
                                    std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
LOOM_INSTANTIATE(double)
LOOM_INSTANTIATE(std::int64_t)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
