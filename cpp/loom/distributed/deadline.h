// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Timeouts of users as nanoseconds. Any number of milliseconds is allowed: what nanoseconds do not
// hold, some 292 years, means never. So it does below zero: torch turns Python's timedelta.max into
// a negative number, since its microseconds overflow. Thread: any.

#include "loom/base/futex.h"

#include <chrono>
#include <cstdint>

namespace loom::distributed {

inline constexpr std::int64_t kNever = INT64_MAX;

[[nodiscard]] constexpr std::int64_t nanoseconds_of(std::chrono::milliseconds timeout) noexcept {
  constexpr std::int64_t kNsPerMs = 1'000'000;
  const std::int64_t ms = timeout.count();
  constexpr std::int64_t kMostMs = kNever / kNsPerMs;
  if (ms >= kMostMs || ms <= -kMostMs) return kNever;
  return ms < 0 ? 0 : ms * kNsPerMs;
}

/// The time of the steady clock `timeout_ns` from now on, or kNever.
[[nodiscard]] inline std::int64_t deadline_after(std::int64_t timeout_ns) noexcept {
  const std::int64_t now = now_ns();
  return timeout_ns > kNever - now ? kNever : now + timeout_ns;
}

[[nodiscard]] inline std::int64_t deadline_after(std::chrono::milliseconds timeout) noexcept {
  return deadline_after(nanoseconds_of(timeout));
}

/// What is left until `deadline_ns`, for calls of others, whose own sums must not overflow: from a
/// millisecond to a year.
[[nodiscard]] inline std::chrono::milliseconds left_until(std::int64_t deadline_ns) noexcept {
  constexpr std::chrono::milliseconds kLeast(1), kMost(std::chrono::hours(24 * 365));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::nanoseconds(deadline_ns - now_ns()));
  return left < kLeast ? kLeast : left > kMost ? kMost : left;
}

}  // namespace loom::distributed
