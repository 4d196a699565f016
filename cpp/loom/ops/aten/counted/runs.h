// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs of equal elements in a vector: what the unique operators return. Elements are compared with
// the one before in blocks, on all cores; the host waits once, for the number of runs. Thread: any.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::ops {

struct ElementRuns {
  at::Tensor values;   ///< the first element of each
  at::Tensor numbers;  ///< of each element, that of its run; undefined if not asked for
  at::Tensor lengths;  ///< undefined if not asked for
};

/// Of a dense vector with elements. With `order`, which is where each element comes from,
/// `numbers` are in the order of where they come from. Throws: as count_nonzero_blocks().
[[nodiscard]] ElementRuns element_runs(const char* name, const at::Tensor& vector,
                                       const at::Tensor& order, bool numbers, bool lengths);

}  // namespace loom::ops
