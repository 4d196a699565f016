// SPDX-License-Identifier: BSD-3-Clause
#include "loom/profiler/clock_map.h"

#include "loom/base/futex.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace loom::profiler {

ClockMap::Pair ClockMap::read() noexcept {
  constexpr int kReadings = 50;
  Pair best;
  std::int64_t narrowest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kReadings; ++i) {
    const std::int64_t before = now_ns();
    const std::int64_t unix_ns = c10::getTime();
    const std::int64_t width = now_ns() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {before + width / 2, unix_ns};
    }
  }
  return best;
}

std::int64_t ClockMap::unix_ns(std::int64_t steady_ns) const noexcept {
  const std::int64_t steady = end_.steady_ns - begin_.steady_ns;
  const std::int64_t since = steady_ns - begin_.steady_ns;
  if (steady <= 0) return begin_.unix_ns + since;
  // The drift is what the two clocks disagree by over the whole profile: small, and exact enough as
  // a fraction. Never so negative that time would run backwards.
  const std::int64_t drift = std::max(end_.unix_ns - begin_.unix_ns, std::int64_t{0}) - steady;
  const double part = static_cast<double>(since) / static_cast<double>(steady);
  return begin_.unix_ns + since + std::llround(part * static_cast<double>(drift));
}

}  // namespace loom::profiler
