// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/index/row_maxima.h"

#include "loom/simd/floats.h"

#include <algorithm>

namespace loom::kernels::index::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

template <class T>
void row_maxima(const T* const* rows, std::int32_t count, std::int64_t columns, T* to,
                std::int32_t* which) noexcept {
  for (std::int64_t c = 0; c < columns; c += kLanes) {
    const std::int64_t lanes = std::min(kLanes, columns - c);
    const auto load_row = [&](std::int32_t r) __attribute__((always_inline)) {
      return lanes == kLanes ? load(rows[r] + c) : load_part(rows[r] + c, lanes, 0);
    };
    Floats best = load_row(0);
    Bits place{};
    for (std::int32_t r = 1; r < count; ++r) {
      const Floats value = load_row(r);
      const Bits above = bits_of<Bits>(value > best);
      best = above != 0 ? value : best;
      place = above != 0 ? Bits{} + static_cast<std::uint32_t>(r) : place;
    }
    if (lanes == kLanes) {
      store(to + c, best);
    } else {
      store_part(to + c, best, lanes);
    }
    for (std::int64_t i = 0; i < lanes; ++i) which[c + i] = static_cast<std::int32_t>(place[i]);
  }
}

template void row_maxima(const float* const*, std::int32_t, std::int64_t, float*,
                         std::int32_t*) noexcept;
template void row_maxima(const simd::BFloat16* const*, std::int32_t, std::int64_t, simd::BFloat16*,
                         std::int32_t*) noexcept;
template void row_maxima(const simd::Half* const*, std::int32_t, std::int64_t, simd::Half*,
                         std::int32_t*) noexcept;

}  // namespace loom::kernels::index::LOOM_SIMD
