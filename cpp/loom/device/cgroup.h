// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the control groups of this process grant it. Groups are nested, and each may have a limit
// (a job of Slurm in its node's group, a service in its slice): the least on the path from the
// process's own group up to the root holds. Versions 1 and 2, also both at once.

#include "loom/base/export.h"

#include <cstddef>
#include <optional>
#include <string>

namespace loom {

struct CgroupLimits {
  std::optional<std::size_t> memory;  ///< bytes
  std::optional<double> cpus;         ///< processors' worth of time
};

/// Reads the limits below `root`, which has the system's /proc/self and /sys/fs/cgroup in it: ""
/// for the system's own. What cannot be read or understood limits nothing.
[[nodiscard]] LOOM_API CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace loom
