// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/convert_row.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

template <class To, class From>
[[gnu::always_inline]] inline void convert(To* to, const From* from, std::int64_t all_elements) {
  for_vectors(
      all_elements, LOOM_EACH {
        (void)chain;
        put(to, i, count, get(from, i, count, 0));
      });
}

}  // namespace

template <class T>
void widen_row(float* to, const T* from, std::int64_t count) noexcept {
  convert(to, from, count);
}
template <class T>
void round_row(T* to, const float* from, std::int64_t count) noexcept {
  convert(to, from, count);
}

template <class T>
void scale_row(T* to, const float* from, const T* factors, std::int64_t all_elements) noexcept {
  for_vectors(
      all_elements, LOOM_EACH {
        (void)chain;
        put(to, i, count, get(from, i, count, 0) * get(factors, i, count, 0));
      });
}

template <class T>
void multiply_row(T* row, float by, std::int64_t all_elements) noexcept {
  for_vectors(
      all_elements, LOOM_EACH {
        (void)chain;
        put(row, i, count, get(row, i, count, 0) * by);
      });
}

template <class T>
void divide_row(T* row, float by, std::int64_t all_elements) noexcept {
  for_vectors(
      all_elements, LOOM_EACH {
        (void)chain;
        put(row, i, count, get(row, i, count, 0) / by);
      });
}

void widen_bytes(simd::BFloat16* to, const std::int8_t* from, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i].bits =
        static_cast<std::uint16_t>(bits_of<std::uint32_t>(static_cast<float>(from[i])) >> 16);
  }
}

#define LOOM_INSTANTIATE(T)                                                   \
  template void widen_row(float*, const T*, std::int64_t) noexcept;           \
  template void round_row(T*, const float*, std::int64_t) noexcept;           \
  template void scale_row(T*, const float*, const T*, std::int64_t) noexcept; \
  template void multiply_row(T*, float, std::int64_t) noexcept;               \
  template void divide_row(T*, float, std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::LOOM_SIMD
