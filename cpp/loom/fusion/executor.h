// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs a plan on the device's cores: cuts its rows and columns into blocks of about the same cost,
// gathers what a kernel cannot walk through, and calls the kernel. How the work is cut depends on
// the plan only. Thread: workers.

#include "loom/device/cores.h"
#include "loom/fusion/kernel.h"
#include "loom/fusion/plan.h"
#include "loom/fusion/producer.h"

#include <atomic>
#include <cstdint>
#include <span>

namespace loom::fusion {

/// A plan with the kernel of its body. Requires: the plan has outputs.
struct Work {
  const Plan* plan;
  const Kernel* kernel;
};

/// Runs all of it as one grid; the plans work on separate memory.
/// Throws: std::bad_alloc when there is no memory for a core's scratch.
void execute(std::span<const Work> works, Cores& cores, int priority);

/// Runs a plan on rectangles of a matrix that it walks().
class WorkEpilogue final : public Epilogue {
 public:
  explicit WorkEpilogue(const Work& work) noexcept : work_(work) {}
  /// Throws: as execute().
  void run(std::int64_t row, std::int64_t rows, std::int64_t column,
           std::int64_t columns) const override;
  void prefetch(std::int64_t row, std::int64_t rows, std::int64_t column,
                std::int64_t columns) const noexcept override;
  /// What all calls took, added up.
  [[nodiscard]] std::int64_t nanoseconds() const noexcept {
    return nanoseconds_.load(std::memory_order_relaxed);  // relaxed: a count
  }

 private:
  const Work work_;
  mutable std::atomic<std::int64_t> nanoseconds_{0};
};

}  // namespace loom::fusion
