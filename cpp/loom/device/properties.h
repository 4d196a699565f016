// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a device is made of, read from the system once. Values are immutable afterwards.

#include "loom/base/export.h"
#include "loom/base/simd_level.h"

#include <cstddef>
#include <string>
#include <vector>

namespace loom {

struct DeviceProperties {
  std::string name;    ///< the processor's model name
  int core_count = 0;  ///< cores that run this device's kernels; two hardware threads are one core
  std::vector<int> cpus;                ///< the processors they may run on
  int numa_node = -1;                   ///< -1 when the host is split without regard to nodes
  std::size_t total_memory = 0;         ///< bytes that may be mapped (LOOM_MEMORY_LIMIT)
  std::size_t l1_cache = 0;             ///< data cache of one core, bytes
  std::size_t l2_cache = 0;             ///< bytes
  std::size_t l3_cache = 0;             ///< bytes, shared
  SimdLevel simd = SimdLevel::kScalar;  ///< whose vectors kernels run with: vectors_of()
};

/// The most devices that a host is split into. There may be more devices than cores, which then
/// share them in turn: code for several devices can be tested on a small machine.
inline constexpr int kMaxDevices = 16;

/// The properties of all devices that `count` (0 = one per NUMA node), `threads` (0 = a fair
/// share) and `memory_limit` (0 = a fair share) make of this host. Respects the process's
/// affinity mask and all its cgroups. Throws: loom::Error for more than kMaxDevices devices.
[[nodiscard]] LOOM_API std::vector<DeviceProperties> enumerate_devices(int count, int threads,
                                                                       std::size_t memory_limit);

}  // namespace loom
