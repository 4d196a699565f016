// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/rng/loops.h"

namespace loom::kernels::rng::LOOM_SIMD {

#define LOOM_ROUND(T)                                                        \
  void round_all(const float* from, T* to, std::int64_t count) noexcept {    \
    for (std::int64_t i = 0; i < count; ++i) simd::round_to(to[i], from[i]); \
  }
LOOM_ROUND(simd::Half)
LOOM_ROUND(simd::BFloat16)
#undef LOOM_ROUND

#define LOOM_SCALE(T)                                                                   \
  void scale_kept(const T* from, const std::uint8_t* kept, T* to, std::int64_t count,   \
                  Computed<T>::Type scale) noexcept {                                   \
    using Real = Computed<T>::Type;                                                     \
    for (std::int64_t i = 0; i < count; ++i) {                                          \
      simd::round_to(to[i], simd::widen(from[i]) * static_cast<Real>(kept[i]) * scale); \
    }                                                                                   \
  }
LOOM_SCALE(float)
LOOM_SCALE(double)
LOOM_SCALE(simd::Half)
LOOM_SCALE(simd::BFloat16)
#undef LOOM_SCALE

bool compare(const std::uint32_t* words, const double* p, std::uint8_t* kept,
             std::int64_t count) noexcept {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) wrong += p[i] >= 0 && p[i] <= 1 ? 0 : 1;
  for (std::int64_t i = 0; i < count; ++i) kept[i] = words[i] * 0x1p-32 < p[i] ? 1 : 0;
  return wrong == 0;
}

}  // namespace loom::kernels::rng::LOOM_SIMD
