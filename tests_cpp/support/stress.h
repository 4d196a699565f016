// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How long and how random stress tests are: seeded, so that a failure can be repeated, and bounded.
// LOOM_STRESS_SECONDS sets the time of one test; without it each takes about a second.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>

namespace loom::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// `count` for plain builds, a tenth of it (at least 1) under a sanitizer.
constexpr int scaled(int count) { return kSanitized ? (count + 9) / 10 : count; }

/// Says when a stress test has run long enough.
class StressClock {
 public:
  StressClock() {
    const char* const text = std::getenv("LOOM_STRESS_SECONDS");
    const double seconds = text != nullptr ? std::atof(text) : 1.0;
    end_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(seconds));
  }

  [[nodiscard]] bool running() const { return std::chrono::steady_clock::now() < end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

/// Random numbers of one thread of a test.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// From 0 to count - 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t count) {
    return std::uniform_int_distribution<std::uint64_t>(0, count - 1)(engine_);
  }
  [[nodiscard]] bool one_in(std::uint64_t count) { return below(count) == 0; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace loom::testing
