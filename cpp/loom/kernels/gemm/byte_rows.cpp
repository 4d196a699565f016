// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/byte_rows.h"

#include "loom/kernels/gemm/byte_rows_tile.h"

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

#if defined(__AVX512BW__)
using Halfwords = __m512i;
[[gnu::always_inline]] inline Halfwords widened_bytes(const std::int8_t* from) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
[[gnu::always_inline]] inline Bits products_of_pairs(Halfwords a, Halfwords b) {
  return bits_of<Bits>(_mm512_madd_epi16(a, b));
}
#elif defined(__AVX2__)
using Halfwords = __m256i;
[[gnu::always_inline]] inline Halfwords widened_bytes(const std::int8_t* from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
[[gnu::always_inline]] inline Bits products_of_pairs(Halfwords a, Halfwords b) {
  return bits_of<Bits>(_mm256_madd_epi16(a, b));
}
#else
struct Halfwords {
  std::int16_t of[2 * kLanes];
};
[[gnu::always_inline]] inline Halfwords widened_bytes(const std::int8_t* from) {
  Halfwords made;
  for (std::int64_t i = 0; i < 2 * kLanes; ++i) made.of[i] = from[i];
  return made;
}
[[gnu::always_inline]] inline Bits products_of_pairs(const Halfwords& a, const Halfwords& b) {
  std::uint32_t sums[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) {
    const std::int32_t sum = a.of[2 * i] * b.of[2 * i] + a.of[2 * i + 1] * b.of[2 * i + 1];
    sums[i] = static_cast<std::uint32_t>(sum);
  }
  Bits made;
  std::memcpy(&made, sums, sizeof made);
  return made;
}
#endif

struct Widened {
  using Vector = Halfwords;
  static constexpr std::int64_t kStep = 2 * kLanes;
  static constexpr int kMove = 0;

  [[gnu::always_inline]] static inline Halfwords whole(const std::int8_t* from) {
    return widened_bytes(from);
  }
  [[gnu::always_inline]] static inline Halfwords moved(const Halfwords& row) { return row; }
  [[gnu::always_inline]] static inline Bits add(Bits sum, const Halfwords& row,
                                                const Halfwords& column) {
    return sum + products_of_pairs(row, column);
  }
};

}  // namespace

void multiply_byte_rows(const ByteRows& product) noexcept { multiply_all_bytes<Widened>(product); }

}  // namespace loom::kernels::gemm::LOOM_SIMD
