// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The kernels of the process, by body: a program that repeats is recognised, and machine code is
// made for what is run again or works on much. Keeps the counts that fusion_report() shows.
// Thread: any; one lock, held for a look or while code is made.

#include "loom/base/export.h"
#include "loom/fusion/kernel.h"
#include "loom/fusion/plan.h"
#include "loom/fusion/program.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace loom::fusion {

/// One body and its kernels. Never moves, and lives until the process ends or the cache is full and
/// forgets it; who runs it holds a reference.
class CachedKernel {
 public:
  explicit CachedKernel(const Body& body) : body_(body) {}

  [[nodiscard]] const Body& body() const noexcept { return body_; }
  /// The best kernel for this many elements, made if it is worth it.
  [[nodiscard]] const Kernel& choose(std::int64_t elements);
  /// Notes a run. `nanoseconds` is what it took on the worker, or its parts on all cores.
  void note_run(const Program& program, std::uint64_t bytes, std::int64_t nanoseconds);

 private:
  friend class KernelCache;

  const Body body_;
  std::shared_ptr<const Kernel> interpreter_, compiled_;
  bool compile_failed_ = false;
  std::uint64_t runs_ = 0, elements_ = 0, bytes_ = 0, unfused_bytes_ = 0;
  std::int64_t nanoseconds_ = 0;
  std::vector<const char*> operators_;
};

/// One line of the report.
struct FusedProgram {
  std::vector<std::string> operators;
  std::string instructions;  ///< to_string(body)
  bool compiled = false;
  std::uint64_t runs = 0;
  std::uint64_t elements = 0;       ///< over all runs
  std::uint64_t bytes = 0;          ///< moved between memory and registers
  std::uint64_t unfused_bytes = 0;  ///< what the operators would have moved one by one
  std::int64_t nanoseconds = 0;
};

class LOOM_API KernelCache {
 public:
  /// Bodies beyond this make the cache forget all of them: a program that makes new ones for ever
  /// must not grow for ever.
  static constexpr std::size_t kMaxBodies = 4096;

  [[nodiscard]] static KernelCache& instance();

  [[nodiscard]] std::shared_ptr<CachedKernel> find(const Body& body);
  [[nodiscard]] std::vector<FusedProgram> report();
  /// Forgets the counts, not the kernels.
  void reset_report();

 private:
  KernelCache() = default;
  struct State;
  static State& state();
};

}  // namespace loom::fusion
