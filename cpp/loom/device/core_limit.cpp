// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/core_limit.h"

#include "loom/base/check.h"

namespace loom {

std::atomic<int> detail::g_core_limit{INT_MAX};

void set_core_limit(int cores) {
  LOOM_CHECK(cores >= 1, "set_core_limit(): expected a positive number of cores, got ", cores);
  detail::g_core_limit.store(cores, std::memory_order_relaxed);
}

}  // namespace loom
