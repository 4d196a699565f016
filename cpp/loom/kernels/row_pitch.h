// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Scratch for rows of float32. Thread: values.

#include <cstdint>

namespace loom::kernels {

/// Floats from one row of scratch to the next: the last vector of a row may reach beyond it.
[[nodiscard]] constexpr std::int64_t row_pitch(std::int64_t columns) noexcept {
  return (columns + 31) / 16 * 16;
}

}  // namespace loom::kernels
