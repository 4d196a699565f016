// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The device keeps time on the steady clock (futex.h), the profiler on the system's: nanoseconds
// since 1970, which is what PyTorch turns its own ticks into. Both clocks are read together when a
// profile begins and when it ends; what lies between is mapped linearly, as PyTorch maps its ticks,
// so that an adjustment of the system's clock moves both in the same way.
// Thread: calibrate and map are ordered by the caller.

#include <cstdint>

namespace loom::profiler {

class ClockMap {
 public:
  /// Both clocks at one moment.
  struct Pair {
    std::int64_t steady_ns = 0;
    std::int64_t unix_ns = 0;
  };
  /// The closest pair of several readings.
  [[nodiscard]] static Pair read() noexcept;

  ClockMap() = default;
  ClockMap(Pair begin, Pair end) noexcept : begin_(begin), end_(end) {}

  /// Order is kept: a <= b gives unix_ns(a) <= unix_ns(b).
  [[nodiscard]] std::int64_t unix_ns(std::int64_t steady_ns) const noexcept;

 private:
  Pair begin_, end_;
};

}  // namespace loom::profiler
