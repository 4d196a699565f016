// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The one door to device memory: host_address() turns the address that tensors show into the one
// that kernels may touch. All devices share one reservation of address space. In unified mode both
// addresses are the same. In isolated mode device addresses are never readable, and the memory
// lies `shadow_offset` above them, so a stray host access faults (fault.h says whose it was).
// A child of fork() has no device memory: the addresses stay reserved there, and an access faults.

#include "loom/base/export.h"

#include <atomic>
#include <cstddef>

namespace loom {

namespace detail {
// Written once, before the first device address exists; every reader got its address from an
// allocation that happened after, so relaxed is enough.
extern LOOM_API std::atomic<std::ptrdiff_t> g_shadow_offset;
}  // namespace detail

[[nodiscard]] inline std::ptrdiff_t shadow_offset() noexcept {
  return detail::g_shadow_offset.load(std::memory_order_relaxed);
}

/// Null stays null.
[[nodiscard]] inline void* host_address(const void* device_address) noexcept {
  if (device_address == nullptr) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(device_address)) + shadow_offset();
}

/// The inverse of host_address.
[[nodiscard]] inline void* device_address(const void* host_address) noexcept {
  if (host_address == nullptr) return nullptr;
  return static_cast<std::byte*>(const_cast<void*>(host_address)) - shadow_offset();
}

/// The device whose memory holds this device address, or -1. Async-signal-safe.
[[nodiscard]] LOOM_API int device_of_address(const void* device_address) noexcept;

/// Takes `bytes` of device addresses for `device` from the reservation, which is made at the first
/// call, by options().memory, with room for what all devices may map. Nothing is accessible yet.
/// Throws: loom::Error when the system or the reservation has no room.
[[nodiscard]] std::byte* reserve_addresses(int device, std::size_t bytes);

/// Keeps children of fork() from inheriting the memory. They cannot use it, and the system would
/// copy each page that either process writes. What is mapped in its place later is another one.
void keep_from_children(void* memory, std::size_t bytes) noexcept;

/// Gives a range back. Requires: from reserve_addresses(), nothing mapped in it.
void release_addresses(std::byte* begin, std::size_t bytes) noexcept;

}  // namespace loom
