// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which results nobody can look at any more. The allocator's client notes each address that it
// frees; a program notes the state of an address when it records a result there, and asks later
// whether the address has been freed since. The answer may be "no" where it should be "yes" (the
// table is small, and entries replace each other), never the other way round.
// Thread: any.

#include "loom/base/export.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace loom::fusion {

namespace detail {

// An entry is the number of an address's 512-byte unit, which allocations are aligned to, above a
// count that makes each free of it another entry. When the count wraps around to the very value
// that a program remembers, the program sees no free: the harmless direction.
inline constexpr int kUnitShift = 9, kCountBits = 25, kTableBits = 12;
extern LOOM_API std::array<std::atomic<std::uint64_t>, std::size_t{1} << kTableBits> g_freed;
extern LOOM_API std::atomic<std::uint64_t> g_freed_count;

inline std::uint64_t unit_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) >> kUnitShift;
}
inline std::atomic<std::uint64_t>& freed_slot(const void* address) noexcept {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  return g_freed[unit_of(address) * kGolden >> (64 - kTableBits)];
}

}  // namespace detail

/// `address`: that of a whole allocation. Call before the memory can be handed out again.
inline void note_freed(const void* address) noexcept {
  using namespace detail;
  // Relaxed, here and below: a program that asks is closed by the thread that freed, or by one that
  // has synchronised with it; who has not may be told "no".
  const std::uint64_t count = g_freed_count.fetch_add(1, std::memory_order_relaxed);
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kCountBits) - 1;
  freed_slot(address).store(unit_of(address) << kCountBits | (count & kMask),
                            std::memory_order_relaxed);
}

/// What is known of an allocation at one moment.
[[nodiscard]] inline std::uint64_t freed_state(const void* address) noexcept {
  return detail::freed_slot(address).load(std::memory_order_relaxed);
}

/// True if the allocation at `address` has been freed since freed_state() returned `state`.
[[nodiscard]] inline bool freed_since(const void* address, std::uint64_t state) noexcept {
  const std::uint64_t now = freed_state(address);
  return now != state && now >> detail::kCountBits == detail::unit_of(address);
}

}  // namespace loom::fusion
