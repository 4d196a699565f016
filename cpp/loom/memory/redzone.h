// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What builds with AddressSanitizer tell it of a device's memory, which is one mapping to it: the
// bytes behind a block and those of free blocks are nobody's (poisoned). Only blocks of an idle
// queue are poisoned, as commands that are still queued may use what the host has given back, and
// none of private pools, as graphs replay what was freed during their capture. Kernels use these
// addresses in unified memory only. In other builds all of it is nothing. Thread: any.

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOOM_ADDRESS_SANITIZER 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LOOM_ADDRESS_SANITIZER 1
#endif
#ifdef LOOM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace loom::detail {

#ifdef LOOM_ADDRESS_SANITIZER
inline constexpr bool kPoisons = true;
/// At least so many bytes behind what a client of a device's allocator asked for: a vector.
inline constexpr std::size_t kRedzoneBytes = 64;

inline void poison(const std::byte* address, std::size_t bytes) noexcept {
  __asan_poison_memory_region(address, bytes);
}
inline void unpoison(const std::byte* address, std::size_t bytes) noexcept {
  __asan_unpoison_memory_region(address, bytes);
}
[[nodiscard]] inline bool is_poisoned(const std::byte* address) noexcept {
  return __asan_address_is_poisoned(address) != 0;
}
#else
inline constexpr bool kPoisons = false;
inline constexpr std::size_t kRedzoneBytes = 0;

inline void poison(const std::byte* /*address*/, std::size_t /*bytes*/) noexcept {}
inline void unpoison(const std::byte* /*address*/, std::size_t /*bytes*/) noexcept {}
[[nodiscard]] inline bool is_poisoned(const std::byte* /*address*/) noexcept { return false; }
#endif

}  // namespace loom::detail
