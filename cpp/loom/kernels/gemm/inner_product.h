// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The inner product of two long vectors of float or a half type: a few products of each lane are
// added in float32, and such sums in double. Thread: any.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::gemm {

LOOM_SIMD_DECLARE(template <class T>
                  double inner_product(const T* a, const T* b, std::int64_t count) noexcept;)

template <class T>
inline constexpr simd::Versions inner_product{LOOM_SIMD_LIST(inner_product<T>)};

}  // namespace loom::kernels::gemm
