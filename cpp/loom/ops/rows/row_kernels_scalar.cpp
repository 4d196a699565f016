// SPDX-License-Identifier: BSD-3-Clause
#define LOOM_ROW_BYTES 16
#include "loom/ops/rows/row_kernels_impl.h"

namespace loom::ops::detail {

const RowKernels* scalar_row_kernels() noexcept { return kRowKernels; }

}  // namespace loom::ops::detail
