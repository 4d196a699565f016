// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/few_rows.h"
#include "loom/kernels/gemm/few_rows_tile.h"

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

/// A step of one vector of pairs, which one instruction multiplies and adds.
struct DotPairs {
  using Left = __m512i;
  using Right = __m512i;
  static constexpr std::int64_t kStep = 2 * kLanes;

  [[gnu::always_inline]] static inline __m512i whole(const simd::BFloat16* from) {
    return _mm512_loadu_si512(from);
  }
  [[gnu::always_inline]] static inline __m512i part(const simd::BFloat16* from,
                                                    std::int64_t count) {
    return _mm512_maskz_loadu_epi16((1U << count) - 1, from);
  }
  [[gnu::always_inline]] static inline Floats add(Floats sum, __m512i left, __m512i right) {
    return bits_of<Floats>(
        _mm512_dpbf16_ps(bits_of<__m512>(sum), bits_of<__m512bh>(left), bits_of<__m512bh>(right)));
  }
};

}  // namespace

void multiply_few_rows_bfloat16(const FewRows<simd::BFloat16, simd::BFloat16>& product) noexcept {
  multiply_all<DotPairs>(product);
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
