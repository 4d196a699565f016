// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/flash_attention/tile_kernels.h"

#include "loom/base/simd_level.h"

#include <c10/util/BFloat16.h>

namespace loom::ops {
namespace {

const AttentionKernels* choose() noexcept {
  const SimdLevel level = simd_level();
  if (level >= SimdLevel::kAvx512 && &detail::avx512_attention_kernels != nullptr) {
    return detail::avx512_attention_kernels();
  }
  if (level >= SimdLevel::kAvx2 && &detail::avx2_attention_kernels != nullptr) {
    return detail::avx2_attention_kernels();
  }
  return detail::scalar_attention_kernels();
}

const AttentionKernels* chosen() noexcept {
  static const AttentionKernels* const kernels = choose();
  return kernels;
}

}  // namespace

template <>
const AttentionKernels& attention_kernels<float>() noexcept {
  return chosen()[0];
}
template <>
const AttentionKernels& attention_kernels<c10::BFloat16>() noexcept {
  return chosen()[1];
}

}  // namespace loom::ops
