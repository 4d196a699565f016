// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/resample_rows.h"

#include "loom/simd/multiply_add.h"

namespace loom::kernels::pool_resample::LOOM_SIMD {

void take_elements(const std::int32_t* place, const float* from, std::int64_t count,
                   float* to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[place[i]];
}

void mix_elements(const Weighted& a, const Weighted& b, const float* from, std::int64_t count,
                  float* __restrict to) noexcept {
  const std::int32_t *first = a.place, *second = b.place;
  const float *one = a.weight, *two = b.weight;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = simd::LOOM_SIMD::multiply_add(from[second[i]], two[i], from[first[i]] * one[i]);
  }
}

void sum_shares(const Weighted& shares, std::int64_t most, const float* from, std::int64_t count,
                float* __restrict to) noexcept {
  const std::int32_t* place = shares.place;
  const float* weight = shares.weight;
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[place[i]] * weight[i];
  for (std::int64_t share = 1; share < most; ++share) {
    place += count;
    weight += count;
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[place[i]] * weight[i];
  }
}

}  // namespace loom::kernels::pool_resample::LOOM_SIMD
