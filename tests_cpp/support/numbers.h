// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Numbers for tests of kernels, the same at each run. Thread: any.

#include <cstdint>
#include <vector>

namespace loom::testing {

/// In [-1, 1), of a linear congruential generator.
inline std::vector<float> numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(seed >> 8) * 0x1p-23F - 1;
  }
  return values;
}

}  // namespace loom::testing
