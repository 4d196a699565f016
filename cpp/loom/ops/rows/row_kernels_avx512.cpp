// SPDX-License-Identifier: BSD-3-Clause
#define LOOM_ROW_BYTES 64
#include "loom/ops/rows/row_kernels_impl.h"

namespace loom::ops::detail {

const RowKernels* avx512_row_kernels() noexcept { return kRowKernels; }

}  // namespace loom::ops::detail
