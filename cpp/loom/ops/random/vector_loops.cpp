// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/random/vector_loops.h"

#include "loom/ops/random/isa_clones.h"

namespace loom::ops::random {

LOOM_ISA_CLONES void narrow(const float* from, c10::Half* to, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<c10::Half>(from[i]);
}

LOOM_ISA_CLONES void narrow(const float* from, c10::BFloat16* to, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<c10::BFloat16>(from[i]);
}

LOOM_ISA_CLONES bool compare(const std::uint32_t* words, const double* p, std::uint8_t* kept,
                             std::int64_t count) noexcept {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) wrong += p[i] >= 0 && p[i] <= 1 ? 0 : 1;
  for (std::int64_t i = 0; i < count; ++i) kept[i] = words[i] * 0x1p-32 < p[i] ? 1 : 0;
  return wrong == 0;
}

LOOM_ISA_CLONES void scale_kept(const float* from, const std::uint8_t* kept, float* to,
                                std::int64_t count, float scale) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale_kept(from[i], kept[i], scale);
}

LOOM_ISA_CLONES void scale_kept(const double* from, const std::uint8_t* kept, double* to,
                                std::int64_t count, double scale) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale_kept(from[i], kept[i], scale);
}

LOOM_ISA_CLONES void scale_kept(const c10::Half* from, const std::uint8_t* kept, c10::Half* to,
                                std::int64_t count, float scale) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale_kept(from[i], kept[i], scale);
}

LOOM_ISA_CLONES void scale_kept(const c10::BFloat16* from, const std::uint8_t* kept,
                                c10::BFloat16* to, std::int64_t count, float scale) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale_kept(from[i], kept[i], scale);
}

}  // namespace loom::ops::random
