// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/number_check.h"

#include <ATen/Dispatch_v2.h>

namespace loom::ops {

void check_filling(c10::ScalarType dtype, const c10::Scalar& number) {
  AT_DISPATCH_V2(dtype, "fill_cpu", AT_WRAP([&] { (void)number.to<scalar_t>(); }),
                 c10::kComplexHalf, c10::kHalf, c10::kBool, c10::kBFloat16,
                 AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX));
}

void check_masked_filling(c10::ScalarType dtype, const c10::Scalar& number) {
  AT_DISPATCH_V2(dtype, "masked_fill", AT_WRAP([&] { (void)number.to<scalar_t>(); }),
                 c10::kComplexHalf, c10::kHalf, c10::kBool, c10::kBFloat16,
                 AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX));
}

}  // namespace loom::ops
