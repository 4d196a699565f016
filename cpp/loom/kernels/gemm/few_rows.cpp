// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/few_rows.h"

#include "loom/kernels/gemm/few_rows_tile.h"

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

[[gnu::always_inline]] inline Floats load_elements(const std::int8_t* from) {
#if defined(__AVX512F__)
  __m128i bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bits_of<Floats>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
#elif defined(__AVX2__)
  __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return bits_of<Floats>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
  float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = from[i];
  return load(lanes);
#endif
}
template <class T>
[[gnu::always_inline]] inline Floats load_elements(const T* from) {
  return load(from);
}

/// A step of one vector of each operand.
struct Elements {
  using Left = Floats;
  using Right = Floats;
  static constexpr std::int64_t kStep = kLanes;

  template <class T>
  [[gnu::always_inline]] static inline Floats whole(const T* from) {
    return load_elements(from);
  }
  template <class T>
  [[gnu::always_inline]] static inline Floats part(const T* from, std::int64_t count) {
    T elements[kLanes] = {};
    std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(T));
    return load_elements(elements);
  }
  [[gnu::always_inline]] static inline Floats add(Floats sum, Floats left, Floats right) {
    return sum + left * right;
  }
};

/// Pairs of bfloat16 as they lie in words: an operation makes floats of all first ones, another one
/// of all second ones.
struct Pairs {
  struct Both {
    Floats first, second;
  };
  using Left = Both;
  using Right = Both;
  static constexpr std::int64_t kStep = 2 * kLanes;

  [[gnu::always_inline]] static inline Both whole(const simd::BFloat16* from) {
    Bits words;
    std::memcpy(&words, from, sizeof words);
    return {bits_of<Floats>(words << 16), bits_of<Floats>(words & 0xffff0000)};
  }
  [[gnu::always_inline]] static inline Both part(const simd::BFloat16* from, std::int64_t count) {
    simd::BFloat16 elements[kStep] = {};
    std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(simd::BFloat16));
    return whole(elements);
  }
  [[gnu::always_inline]] static inline Floats add(Floats sum, const Both& left, const Both& right) {
    return sum + left.first * right.first + left.second * right.second;
  }
};

template <class Product>
struct PairOf {
  using Type = Elements;
};
template <>
struct PairOf<FewRows<simd::BFloat16, simd::BFloat16>> {
  using Type = Pairs;
};

}  // namespace

template <class Product>
void multiply_few_rows(const Product& product) noexcept {
  multiply_all<typename PairOf<Product>::Type>(product);
}

template void multiply_few_rows(const FewRows<float, float>&) noexcept;
template void multiply_few_rows(const FewRows<simd::BFloat16, simd::BFloat16>&) noexcept;
template void multiply_few_rows(const FewRows<simd::Half, simd::Half>&) noexcept;
template void multiply_few_rows(const FewRows<float, std::int8_t>&) noexcept;

}  // namespace loom::kernels::gemm::LOOM_SIMD
