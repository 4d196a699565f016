// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/extrema.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

template <class T>
void extrema(const T* from, std::int64_t columns, float* least, float* most) noexcept {
  const float first = simd::widen(from[0]);
  Floats low[kChains], high[kChains];
  Bits not_numbers[kChains];
  for (int chain = 0; chain < kChains; ++chain) {
    low[chain] = high[chain] = all(first);
    not_numbers[chain] = Bits{};
  }
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = get(from, i, count, first);
        low[chain] = smaller(value, low[chain]);
        high[chain] = larger(value, high[chain]);
        not_numbers[chain] |= bits_of<Bits>(value != value);
      });
  for (int chain = 1; chain < kChains; ++chain) {
    low[0] = smaller(low[0], low[chain]);
    high[0] = larger(high[0], high[chain]);
    not_numbers[0] |= not_numbers[chain];
  }
  std::uint32_t any = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) any |= not_numbers[0][lane];
  *least = any != 0 ? __builtin_nanf("") : -largest_of(-low[0]);
  *most = any != 0 ? __builtin_nanf("") : largest_of(high[0]);
}

template void extrema(const float*, std::int64_t, float*, float*) noexcept;
template void extrema(const simd::BFloat16*, std::int64_t, float*, float*) noexcept;
template void extrema(const simd::Half*, std::int64_t, float*, float*) noexcept;

}  // namespace loom::kernels::norm::LOOM_SIMD
