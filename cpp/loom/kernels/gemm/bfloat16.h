// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What products of bfloat16 do beside oneDNN's block kernel (brgemm), which needs AVX-512 with
// BF16; so do these. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstddef>
#include <cstdint>

namespace loom::kernels::gemm {

/// Two rows as one of pairs, which is how dot product instructions want them: the first row's
/// element is in the lower half of each.
LOOM_SIMD_FROM(avx512_bf16, interleave_pairs,
               void(const simd::BFloat16* first, const simd::BFloat16* second, std::int64_t count,
                    std::uint32_t* to) noexcept);

/// to[j] = sums[j] + addend[j] rounded to bfloat16, for `count` elements; `addend` may be null. As
/// in dot products of bfloat16, what is too small to be a normal number is 0.
LOOM_SIMD_FROM(avx512_bf16, store_sums,
               void(const float* sums, const simd::BFloat16* addend, std::int64_t count,
                    simd::BFloat16* to) noexcept);

/// Elements of a vector, for gather_rows().
inline constexpr std::int64_t kVectorElements = 32;

/// Some neighbours of a row that is put together, all in one vector of it.
struct RowPiece {
  std::ptrdiff_t offset;   ///< from the row's base to what would be the vector's first element
  std::uint32_t elements;  ///< a bit for each element of the vector: those that the piece has
  bool ends;               ///< it is the last piece of its vector
};

/// Puts `count` rows together, of pieces in their order: row i from base + i * step, at to + i *
/// ld; elements that no piece has are 0. Nothing else is read, whole vectors are stored. Requires:
/// the pieces of a vector follow each other, the last piece ends its vector, and `ld` elements are
/// as many vectors as the pieces make, or more.
LOOM_SIMD_FROM(avx512_bf16, gather_rows,
               void(const simd::BFloat16* base, std::int64_t step, std::int64_t count,
                    const RowPiece* pieces, std::size_t piece_count, simd::BFloat16* to,
                    std::int64_t ld) noexcept);

/// to (+)= left x right, for at most 64 columns; what the block kernel computes, for when it
/// refuses to. Strides are in elements from row to row; a row of `right` is one of pairs, of rows
/// that follow each other. Requires: `inner` is even.
LOOM_SIMD_FROM(avx512_bf16, multiply_pairs,
               void(std::int64_t rows, std::int64_t columns, std::int64_t inner,
                    const simd::BFloat16* left, std::int64_t left_ld, const simd::BFloat16* right,
                    std::int64_t right_ld, float* to, std::int64_t ld, bool add) noexcept);

}  // namespace loom::kernels::gemm
