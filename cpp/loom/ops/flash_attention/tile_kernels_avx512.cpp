// SPDX-License-Identifier: BSD-3-Clause
#define LOOM_ROW_BYTES 64
#include "loom/ops/flash_attention/tile_kernels_impl.h"

namespace loom::ops::detail {

const AttentionKernels* avx512_attention_kernels() noexcept { return kAttentionKernels; }

}  // namespace loom::ops::detail
