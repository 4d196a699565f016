// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What moves elements does not look into them: it knows them by their size. Thread: any.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace loom::kernels {

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

/// Copies an item of T's size between places of any alignment: a run of several elements that goes
/// as one item has the alignment of its elements. One load and one store.
template <class T>
[[gnu::always_inline]] inline void copy_item(std::byte* to, const std::byte* from) {
  std::memcpy(to, from, sizeof(T));
}

}  // namespace loom::kernels
