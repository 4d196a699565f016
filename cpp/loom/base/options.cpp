// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/options.h"

#include "loom/base/check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <unistd.h>
#include <vector>

namespace loom {
namespace {

constexpr std::string_view kPrefix = "LOOM_";
constexpr int kMaxDevices = 16;

[[noreturn]] void reject(std::string_view name, std::string_view value, std::string_view expected) {
  detail::throw_error(detail::concat(name, ": expected ", expected, ", got '", value, "'"));
}

std::int64_t parse_integer(std::string_view name, std::string_view value, std::int64_t low,
                           std::int64_t high) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  if (!whole || number < low || number > high) {
    reject(name, value, detail::concat("a whole number from ", low, " to ", high));
  }
  return number;
}

/// Takes a number such as 512 or 1.5 from the front of a text; not a number if there is none. (With
/// std::from_chars for floating-point numbers the library would need a newer C++ library than other
/// programs do.)
double take_decimal(std::string_view& text) {
  double number = 0, place = 1;
  bool digits = false, behind_point = false;
  while (!text.empty()) {
    const char next = text.front();
    if (next >= '0' && next <= '9') {
      number = number * 10 + (next - '0');
      if (behind_point) place *= 10;
      digits = true;
    } else if (next == '.' && !behind_point) {
      behind_point = true;
    } else {
      break;
    }
    text.remove_prefix(1);
  }
  return digits ? number / place : std::numeric_limits<double>::quiet_NaN();
}

/// Bytes: a number with an optional unit K, M, G or T (powers of 1024), e.g. 512M or 1.5G.
std::size_t parse_bytes(std::string_view name, std::string_view value) {
  constexpr double kMinimum = 2 << 20;
  constexpr double kMaximum = 16.0 * 1024 * 1024 * 1024 * 1024;
  constexpr std::string_view kExpected =
      "a number of bytes from 2M to 16T with an optional unit K, M, G or T, such as 512M or 1.5G";
  std::string_view unit = value;
  double number = take_decimal(unit);
  if (unit.size() == 1) {
    const std::size_t power = std::string_view("KMGT").find(static_cast<char>(unit[0] & ~0x20));
    if (power == std::string_view::npos) reject(name, value, kExpected);
    number = std::ldexp(number, 10 * (static_cast<int>(power) + 1));
  } else if (!unit.empty()) {
    reject(name, value, kExpected);
  }
  // Written so that a not-a-number fails too.
  if (!(number >= kMinimum && number <= kMaximum)) reject(name, value, kExpected);
  return static_cast<std::size_t>(number);
}

/// What torchrun tells each process: how many there are on this host. Programs then take the
/// device of their LOCAL_RANK.
constexpr std::string_view kLocalRanks = "LOCAL_WORLD_SIZE=";

int ranks_of(std::string_view value) {
  int ranks = 0;
  std::from_chars(value.data(), value.data() + value.size(), ranks);
  return ranks >= 1 && ranks <= kMaxDevices ? ranks : 0;
}

void set_devices(Options& options, std::string_view name, std::string_view value) {
  options.devices = static_cast<int>(parse_integer(name, value, 1, kMaxDevices));
}

void set_threads(Options& options, std::string_view name, std::string_view value) {
  options.threads = static_cast<int>(parse_integer(name, value, 1, 1024));
}

void set_memory(Options& options, std::string_view name, std::string_view value) {
  if (value == "unified") {
    options.memory = MemoryMode::kUnified;
  } else if (value == "isolated") {
    options.memory = MemoryMode::kIsolated;
  } else {
    reject(name, value, "'unified' or 'isolated'");
  }
}

void set_memory_limit(Options& options, std::string_view name, std::string_view value) {
  options.memory_limit = parse_bytes(name, value);
}

void set_queue_depth(Options& options, std::string_view name, std::string_view value) {
  options.queue_depth = static_cast<std::size_t>(parse_integer(name, value, 2, 1 << 20));
}

void set_error_stacks(Options& options, std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") reject(name, value, "'0' or '1'");
  options.error_stacks = value == "1";
}

void set_launch_blocking(Options& options, std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") reject(name, value, "'0' or '1'");
  options.launch_blocking = value == "1";
}

void set_spin(Options& options, std::string_view name, std::string_view value) {
  options.spin_ns = parse_integer(name, value, 0, 1'000'000) * 1000;
}

void set_backward_thread(Options& options, std::string_view name, std::string_view value) {
  if (value != "caller" && value != "device") reject(name, value, "'caller' or 'device'");
  options.backward_on_caller = value == "caller";
}

void set_fallback(Options& options, std::string_view name, std::string_view value) {
  if (value == "allow") {
    options.fallback = FallbackMode::kAllow;
  } else if (value == "warn") {
    options.fallback = FallbackMode::kWarn;
  } else if (value == "error") {
    options.fallback = FallbackMode::kError;
  } else {
    reject(name, value, "'allow', 'warn' or 'error'");
  }
}

void set_simd(Options& options, std::string_view name, std::string_view value) {
  constexpr std::array<std::string_view, 6> kLevels = {"scalar", "neon",        "avx2",
                                                       "avx512", "avx512_bf16", "amx"};
  static_assert(kLevels.size() == static_cast<std::size_t>(SimdLevel::kAmx) + 1);
  const auto found = std::find(kLevels.begin(), kLevels.end(), value);
  if (found == kLevels.end()) {
    reject(name, value, "'scalar', 'neon', 'avx2', 'avx512', 'avx512_bf16' or 'amx'");
  }
  options.simd = static_cast<SimdLevel>(found - kLevels.begin());
}

void set_placement(Options& options, std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") reject(name, value, "'0' or '1'");
  options.placement = value == "1";
}

void set_fusion_jit(Options& options, std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") reject(name, value, "'0' or '1'");
  options.fusion_jit = value == "1";
}

void set_host_id(Options& options, std::string_view name, std::string_view value) {
  if (value.empty()) reject(name, value, "a name");
  options.host_id = value;
}

constexpr std::array kTable = {
    OptionInfo{"LOOM_DEVICES", "one per NUMA node, under torchrun LOCAL_WORLD_SIZE",
               "Number of devices that the host's cores are split into, 1 to 16."},
    OptionInfo{"LOOM_THREADS", "its share of the host's cores", "Cores of each device."},
    OptionInfo{
        "LOOM_MEMORY", "unified",
        "unified: the host may read device memory; isolated: a host access stops the process "
        "with a message."},
    OptionInfo{"LOOM_MEMORY_LIMIT", "its share of three quarters of the host's memory",
               "Bytes that each device may use, such as 512M or 8G."},
    OptionInfo{"LOOM_QUEUE_DEPTH", "4096",
               "Commands that the host may be ahead of a stream before it is held, 2 to 1048576."},
    OptionInfo{"LOOM_ERROR_STACKS", "0",
               "1: asynchronous errors say where the failed command was submitted."},
    OptionInfo{
        "LOOM_LAUNCH_BLOCKING", "0",
        "1: every launch waits for its kernel, so that errors are raised where they are made."},
    OptionInfo{"LOOM_SPIN_US", "30",
               "Microseconds that an idle thread spins before it sleeps; a worker 8 times that."},
    OptionInfo{"LOOM_PLACEMENT", "1",
               "0: threads do not make room for each other on the processors that they share."},
    OptionInfo{"LOOM_BACKWARD_THREAD", "caller",
               "Where backward runs: caller, on the thread that calls it; device, on a thread of "
               "autograd for each device."},
    OptionInfo{"LOOM_FALLBACK", "allow",
               "When an operator takes the synchronous fallback: allow, warn or error."},
    OptionInfo{
        "LOOM_SIMD", "what the processor has",
        "The last instruction set that kernels use: scalar, neon, avx2, avx512, avx512_bf16 or "
        "amx."},
    OptionInfo{"LOOM_FUSION_JIT", "1",
               "0: fused programs are interpreted rather than compiled to machine code."},
    OptionInfo{"LOOM_HOST_ID", "the machine's boot id",
               "Ranks of one group that have the same one try to share memory, others use the "
               "network."},
};

using Setter = void (*)(Options&, std::string_view name, std::string_view value);
constexpr std::array<Setter, kTable.size()> kSetters = {
    set_devices,     set_threads,         set_memory,          set_memory_limit,
    set_queue_depth, set_error_stacks,    set_launch_blocking, set_spin,
    set_placement,   set_backward_thread, set_fallback,        set_simd,
    set_fusion_jit,  set_host_id};

bool belongs_to_build_or_tests(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {
      "LOOM_CHECKS", "LOOM_CORE_ONLY", "LOOM_LOCK_CHECKS", "LOOM_SANITIZER", "LOOM_STRESS_SECONDS"};
  return name.starts_with("LOOM_BUILD_") || name.starts_with("LOOM_TEST_") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// Throws for a name that is nearly that of an option. What else begins with LOOM_ belongs to
/// somebody else.
void reject_misspelt(std::string_view name) {
  constexpr std::size_t kMisspelt = 2;
  for (const OptionInfo& info : kTable) {
    if (edit_distance(name, info.name) > kMisspelt) continue;
    detail::throw_error(detail::concat(
        name, ": expected the name of a loom option, got an unknown one; did you mean ", info.name,
        "? `python -m torch_loom env` lists them all"));
  }
}

}  // namespace

const Options& options() {
  // A constructor that throws leaves the static unmade, so that the next call throws again.
  static const Options parsed = parse_options(environ);
  return parsed;
}

Options parse_options(const char* const* environment) {
  Options options;
  int local_ranks = 0;
  for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(kLocalRanks)) local_ranks = ranks_of(text.substr(kLocalRanks.size()));
    if (!text.starts_with(kPrefix)) continue;
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
    const auto row = std::find_if(kTable.begin(), kTable.end(),
                                  [&](const OptionInfo& info) { return info.name == name; });
    if (row != kTable.end()) {
      kSetters[static_cast<std::size_t>(row - kTable.begin())](options, name, value);
    } else if (!belongs_to_build_or_tests(name)) {
      reject_misspelt(name);
    }
  }
  if (options.devices == 0) options.devices = local_ranks;
  return options;
}

std::span<const OptionInfo> option_table() noexcept { return kTable; }

}  // namespace loom
