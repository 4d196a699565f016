// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/bfloat16.h"

#include <immintrin.h>

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

using simd::BFloat16;

constexpr std::int64_t kLanes = kVectorElements;

struct Orders {
  alignas(64) std::uint16_t low[kLanes], high[kLanes];
};
constexpr Orders make_orders() {
  Orders orders{};
  for (std::uint16_t i = 0; i < kLanes; ++i) {
    const auto from = static_cast<std::uint16_t>(i / 2 + (i % 2) * kLanes);
    orders.low[i] = from;
    orders.high[i] = static_cast<std::uint16_t>(from + kLanes / 2);
  }
  return orders;
}
constexpr Orders kOrders = make_orders();

__mmask32 first_lanes(std::int64_t count) {
  return count >= kLanes ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

__m512 to_float(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

__m512i rounded_sums(__m512 low, __m512 high, __m512i addend) {
  low = _mm512_add_ps(low, to_float(_mm512_castsi512_si256(addend)));
  high = _mm512_add_ps(high, to_float(_mm512_extracti64x4_epi64(addend, 1)));
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// One vector of each row.
template <int kPieces>
void gather_column(const BFloat16* base, std::int64_t step, std::int64_t count,
                   const RowPiece* pieces, BFloat16* to, std::int64_t ld) {
  // What is stored might be the pieces, for all that the compiler knows.
  __mmask32 elements[kPieces];
  const BFloat16* from[kPieces];
  for (int p = 0; p < kPieces; ++p) {
    elements[p] = pieces[p].elements;
    from[p] = base + pieces[p].offset;
  }
  for (std::int64_t i = 0; i < count; ++i, to += ld) {
    __m512i row = _mm512_maskz_loadu_epi16(elements[0], from[0] + i * step);
    for (int p = 1; p < kPieces; ++p) {
      row = _mm512_mask_loadu_epi16(row, elements[p], from[p] + i * step);
    }
    _mm512_storeu_si512(to, row);
  }
}
void gather_column(const BFloat16* base, std::int64_t step, std::int64_t count,
                   const RowPiece* pieces, const RowPiece* end, BFloat16* to, std::int64_t ld) {
  for (std::int64_t i = 0; i < count; ++i, base += step, to += ld) {
    __m512i row = _mm512_setzero_si512();
    for (const RowPiece* piece = pieces; piece != end; ++piece) {
      row = _mm512_mask_loadu_epi16(row, piece->elements, base + piece->offset);
    }
    _mm512_storeu_si512(to, row);
  }
}

// A row of at most four vectors.
void multiply_row(const BFloat16* left, std::int64_t inner, const std::uint32_t* pairs,
                  std::int64_t ld, const __mmask16* masks, float* to, bool add) {
  constexpr int kVectors = 4, kFloats = 16;
  __m512 sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = add ? _mm512_maskz_loadu_ps(masks[v], to + v * kFloats) : _mm512_setzero_ps();
  }
  for (std::int64_t k = 0; k < inner; k += 2, pairs += ld) {
    std::uint32_t both;
    __builtin_memcpy(&both, left + k, sizeof(both));
    const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(both)));
    for (int v = 0; v < kVectors; ++v) {
      const __m512i b = _mm512_maskz_loadu_epi32(masks[v], pairs + v * kFloats);
      sums[v] = _mm512_dpbf16_ps(sums[v], a, reinterpret_cast<__m512bh>(b));
    }
  }
  for (int v = 0; v < kVectors; ++v) _mm512_mask_storeu_ps(to + v * kFloats, masks[v], sums[v]);
}

}  // namespace

void multiply_pairs(std::int64_t rows, std::int64_t columns, std::int64_t inner,
                    const BFloat16* left, std::int64_t left_ld, const BFloat16* right,
                    std::int64_t right_ld, float* to, std::int64_t ld, bool add) noexcept {
  const std::uint64_t wanted =
      columns >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << columns) - 1;
  __mmask16 masks[4];
  for (int v = 0; v < 4; ++v) masks[v] = static_cast<__mmask16>(wanted >> (16 * v));
  const auto* pairs = reinterpret_cast<const std::uint32_t*>(right);
  for (std::int64_t row = 0; row < rows; ++row) {
    multiply_row(left + row * left_ld, inner, pairs, right_ld, masks, to + row * ld, add);
  }
}

void interleave_pairs(const BFloat16* first, const BFloat16* second, std::int64_t count,
                      std::uint32_t* to) noexcept {
  const __m512i low = _mm512_load_si512(kOrders.low), high = _mm512_load_si512(kOrders.high);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i a = _mm512_loadu_si512(first + i), b = _mm512_loadu_si512(second + i);
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512(to + i + kLanes / 2, _mm512_permutex2var_epi16(a, high, b));
  }
  if (i == count) return;
  const __mmask32 mask = first_lanes(count - i);
  const __m512i a = _mm512_maskz_loadu_epi16(mask, first + i);
  const __m512i b = _mm512_maskz_loadu_epi16(mask, second + i);
  const auto low_mask = static_cast<__mmask16>(mask);
  const auto high_mask = static_cast<__mmask16>(mask >> 16);
  _mm512_mask_storeu_epi32(to + i, low_mask, _mm512_permutex2var_epi16(a, low, b));
  _mm512_mask_storeu_epi32(to + i + kLanes / 2, high_mask, _mm512_permutex2var_epi16(a, high, b));
}

void store_sums(const float* sums, const BFloat16* addend, std::int64_t count,
                BFloat16* to) noexcept {
  std::int64_t i = 0;
  // Masked stores are slow.
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i added =
        addend == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(addend + i);
    const __m512 low = _mm512_loadu_ps(sums + i), high = _mm512_loadu_ps(sums + i + kLanes / 2);
    _mm512_storeu_si512(to + i, rounded_sums(low, high, added));
  }
  if (i == count) return;
  const __mmask32 mask = first_lanes(count - i);
  const __m512i added =
      addend == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, addend + i);
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), sums + i);
  const __m512 high =
      _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), sums + i + kLanes / 2);
  _mm512_mask_storeu_epi16(to + i, mask, rounded_sums(low, high, added));
}

// A load for each piece and a store for each vector: copying the pieces one by one stores most
// lines twice. Vector by vector, so that what a piece has stays in a mask register.
void gather_rows(const BFloat16* base, std::int64_t step, std::int64_t count,
                 const RowPiece* pieces, std::size_t piece_count, BFloat16* to,
                 std::int64_t ld) noexcept {
  for (const RowPiece* const end = pieces + piece_count; pieces != end; to += kLanes) {
    const RowPiece* next = pieces;
    while (!next->ends) ++next;
    ++next;
    switch (next - pieces) {
      case 1:
        gather_column<1>(base, step, count, pieces, to, ld);
        break;
      case 2:
        gather_column<2>(base, step, count, pieces, to, ld);
        break;
      case 3:
        gather_column<3>(base, step, count, pieces, to, ld);
        break;
      default:
        gather_column(base, step, count, pieces, next, to, ld);
    }
    pieces = next;
  }
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
