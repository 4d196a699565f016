// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/row_kernels.h"

#include "loom/base/simd_level.h"

namespace loom::ops {
namespace {

const RowKernels* choose() noexcept {
  const SimdLevel level = simd_level();
  if (level >= SimdLevel::kAvx512 && &detail::avx512_row_kernels != nullptr) {
    return detail::avx512_row_kernels();
  }
  if (level >= SimdLevel::kAvx2 && &detail::avx2_row_kernels != nullptr) {
    return detail::avx2_row_kernels();
  }
  return detail::scalar_row_kernels();
}

}  // namespace

const RowKernels& row_kernels(RowElement element) noexcept {
  static const RowKernels* const chosen = choose();
  return chosen[static_cast<int>(element)];
}

}  // namespace loom::ops
