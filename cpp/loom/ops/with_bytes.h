// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What moves elements does not look into them: it knows them by their size. Thread: any.

#include <cstddef>
#include <cstdint>

namespace loom::ops {

/// An element of 16 bytes (complex128).
struct SixteenBytes {
  std::uint64_t low, high;
};

/// Calls `run` with something of so many bytes: 1, 2, 4, 8 or 16.
template <class Run>
auto with_bytes(std::size_t bytes, Run&& run) {
  switch (bytes) {
    case 1:
      return run(std::uint8_t{});
    case 2:
      return run(std::uint16_t{});
    case 4:
      return run(std::uint32_t{});
    case 8:
      return run(std::uint64_t{});
    default:
      return run(SixteenBytes{});
  }
}

}  // namespace loom::ops
