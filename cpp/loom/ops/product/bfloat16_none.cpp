// SPDX-License-Identifier: BSD-3-Clause
// Processors that can_multiply<c10::BFloat16>() says no to: nobody calls these.
#include "loom/ops/product/bfloat16.h"
#include "loom/ops/product/winograd_transforms.h"

namespace loom::ops {

void interleave(const std::uint16_t*, const std::uint16_t*, std::int64_t, std::uint32_t*) {}
void store_sums(const float*, const c10::BFloat16*, std::int64_t, c10::BFloat16*) {}
void gather_rows(const c10::BFloat16*, std::int64_t, std::int64_t, const RowPiece*, std::size_t,
                 c10::BFloat16*, std::int64_t) {}
void multiply_pairs(std::int64_t, std::int64_t, std::int64_t, const c10::BFloat16*, std::int64_t,
                    const c10::BFloat16*, std::int64_t, float*, std::int64_t, bool) {}
void transform_wide_tile(const c10::BFloat16*, std::int64_t, std::int64_t, float*, std::int64_t) {}
void transform_wide_taps(const c10::BFloat16*, std::int64_t, bool, float*, std::int64_t) {}
bool transform_wide_products(const float*, std::int64_t, std::int64_t, const c10::BFloat16*,
                             const WidePixels&) {
  return true;
}
void transform_wide_pixels(const c10::BFloat16*, std::int64_t, std::int64_t, std::int64_t, float*,
                           std::int64_t) {}
void transform_wide_sums(const float*, std::int64_t, std::int64_t, c10::BFloat16*) {}

}  // namespace loom::ops
