// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/byte_rows.h"
#include "loom/kernels/gemm/byte_rows_tile.h"

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

/// The instruction takes bytes without a sign for one operand: so rows are moved.
struct ByFour {
  using Vector = __m512i;
  static constexpr std::int64_t kStep = 64;
  static constexpr int kMove = 128;

  [[gnu::always_inline]] static inline __m512i whole(const std::int8_t* from) {
    return _mm512_loadu_si512(from);
  }
  [[gnu::always_inline]] static inline __m512i moves() { return _mm512_set1_epi8(-kMove); }
  [[gnu::always_inline]] static inline __m512i moved(__m512i row) {
    return _mm512_xor_si512(row, moves());
  }
  [[gnu::always_inline]] static inline Bits add(Bits sum, __m512i row, __m512i column) {
    return bits_of<Bits>(_mm512_dpbusd_epi32(bits_of<__m512i>(sum), row, column));
  }
};

}  // namespace

void multiply_byte_rows_by_four(const ByteRows& product) noexcept {
  multiply_all_bytes<ByFour>(product);
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
