// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A set of processors as the system knows it (cpu_set_t), on hosts with more than 1024 of them,
// too. Thread: none of its own.

#include "loom/base/export.h"

#include <cstddef>
#include <optional>
#include <sched.h>
#include <vector>

namespace loom {

class LOOM_API CpuSet {
 public:
  /// As sched_getaffinity(). Tests pass systems with more processors than theirs.
  using GetAffinity = int (*)(pid_t thread, std::size_t bytes, cpu_set_t* set);
  /// As sched_setaffinity(). Tests pass systems that refuse.
  using SetAffinity = int (*)(pid_t thread, std::size_t bytes, const cpu_set_t* set);

  CpuSet() = default;
  /// Negative numbers are left out.
  explicit CpuSet(const std::vector<int>& cpus);

  /// The processors that the calling thread may run on; nothing when the system does not say.
  [[nodiscard]] static std::optional<CpuSet> of_this_thread(GetAffinity get = &sched_getaffinity);
  /// The same of the process's main thread.
  [[nodiscard]] static std::optional<CpuSet> of_main_thread();
  /// Lets the calling thread run on these only. False, with nothing changed, when the system
  /// refuses, as it does for an empty set.
  [[nodiscard]] bool apply_to_this_thread(SetAffinity set = &sched_setaffinity) const;

  void insert(int cpu);
  void erase(int cpu) noexcept;
  [[nodiscard]] bool contains(int cpu) const noexcept;
  [[nodiscard]] bool empty() const noexcept;
  /// In order.
  [[nodiscard]] std::vector<int> cpus() const;
  friend bool operator==(const CpuSet&, const CpuSet&);

 private:
  [[nodiscard]] static std::optional<CpuSet> of_thread(pid_t thread, GetAffinity get);

  // The system's layout: bit i % 64 of word i / 64 is processor i.
  std::vector<__cpu_mask> words_;
};

}  // namespace loom
