// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What products of bfloat16 do beside the block kernel, in vectors of AVX-512. Thread: any.
// Requires: can_multiply<c10::BFloat16>() (multiply.h), which means that the processor has
// AVX512_BF16.

#include <c10/util/BFloat16.h>

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

}  // namespace loom::ops
