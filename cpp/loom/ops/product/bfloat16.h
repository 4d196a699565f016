// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What products of bfloat16 do beside the block kernel, in vectors of AVX-512. Thread: any.
// Requires: can_multiply<c10::BFloat16>() (multiply.h), which means that the processor has
// AVX512_BF16.

#include <c10/util/BFloat16.h>

#include <cstddef>
#include <cstdint>

namespace loom::ops {

/// Two rows as one of pairs, which is how dot product instructions want them: the first row's
/// element is in the lower half of each.
void interleave(const std::uint16_t* first, const std::uint16_t* second, std::int64_t count,
                std::uint32_t* to);

/// to[j] = sums[j] + addend[j] rounded to bfloat16, for `count` elements; `addend` may be null. As
/// in dot products of bfloat16, what is too small to be a normal number is 0.
void store_sums(const float* sums, const c10::BFloat16* addend, std::int64_t count,
                c10::BFloat16* to);

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
void gather_rows(const c10::BFloat16* base, std::int64_t step, std::int64_t count,
                 const RowPiece* pieces, std::size_t piece_count, c10::BFloat16* to,
                 std::int64_t ld);

/// to (+)= left x right, for at most 64 columns; what the block kernel (brgemm) computes, for when
/// it refuses to. Strides are in elements from row to row; a row of `right` is one of pairs, of
/// rows that follow each other. Requires: `inner` is even.
void multiply_pairs(std::int64_t rows, std::int64_t columns, std::int64_t inner,
                    const c10::BFloat16* left, std::int64_t left_ld, const c10::BFloat16* right,
                    std::int64_t right_ld, float* to, std::int64_t ld, bool add);

}  // namespace loom::ops
