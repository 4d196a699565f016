// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The one table of LOOM_* environment variables. They are read once, at the first use of the
// device, and checked: a name that is not in the table or a value that does not parse is an error
// that says what was expected. Names that the build and the tests use (LOOM_BUILD_*, LOOM_TEST_*,
// LOOM_CHECKS, LOOM_CORE_ONLY, LOOM_LOCK_CHECKS, LOOM_SANITIZER, LOOM_STRESS_SECONDS) are let pass.
// Thread: options() may be called from any thread.

#include "loom/base/export.h"
#include "loom/base/simd_level.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace loom {

enum class MemoryMode { kUnified, kIsolated };

/// What happens when an operator takes the synchronous fallback.
enum class FallbackMode { kAllow, kWarn, kError };

/// The widest instruction set that kernels may use, where the processor has it.

struct Options {
  int devices = 0;  ///< LOOM_DEVICES: number of devices, 1 to 16; 0 = one per NUMA node
  int threads = 0;  ///< LOOM_THREADS: cores of each device; 0 = its share of the host's
  MemoryMode memory = MemoryMode::kUnified;  ///< LOOM_MEMORY: unified | isolated
  std::size_t memory_limit = 0;    ///< LOOM_MEMORY_LIMIT: bytes per device, e.g. 512M, 8G; 0 = its
                                   ///< share of the host's memory
  std::size_t queue_depth = 4096;  ///< LOOM_QUEUE_DEPTH: commands that the host may be ahead
  bool error_stacks = false;       ///< LOOM_ERROR_STACKS: errors say where commands were submitted
  bool launch_blocking = false;    ///< LOOM_LAUNCH_BLOCKING: every launch waits for its kernel
  std::int64_t spin_ns = 30'000;   ///< LOOM_SPIN_US (microseconds): how long an idle thread spins
  bool placement = true;           ///< LOOM_PLACEMENT: threads make room for each other
  bool backward_on_caller = true;  ///< LOOM_BACKWARD_THREAD: caller | device
  FallbackMode fallback = FallbackMode::kAllow;  ///< LOOM_FALLBACK: allow | warn | error
  SimdLevel simd = SimdLevel::kAmx;              ///< LOOM_SIMD: scalar | neon | ... | amx
  bool fusion_jit = true;  ///< LOOM_FUSION_JIT: fused programs are compiled to machine code
  std::string host_id;     ///< LOOM_HOST_ID: ranks of one value try to share memory; empty = those
                           ///< of one boot of the machine
};

/// One row of the table, for documentation and for the command line's `env` listing.
struct OptionInfo {
  std::string_view name;           ///< the environment variable
  std::string_view default_value;  ///< as a user would write it
  std::string_view help;
};

/// The options of this process, read from the environment at the first call.
/// Throws: loom::Error naming the variable, its value and what was expected; again at every call.
[[nodiscard]] LOOM_API const Options& options();

/// Reads the options from `environment` ("NAME=value" strings, null-terminated array).
/// Throws: as options().
[[nodiscard]] LOOM_API Options parse_options(const char* const* environment);

[[nodiscard]] LOOM_API std::span<const OptionInfo> option_table() noexcept;

}  // namespace loom
