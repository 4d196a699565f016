// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which operators took the synchronous fallback: how often, how long, and from where.
// Thread: any.

#include "loom/base/export.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loom::ops {

struct FallbackEntry {
  std::string name;  ///< e.g. "aten::cumsum.out"
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;  ///< wait for the stream and run, on the calling thread
  /// Places in the caller's program, most frequent first; at most kMaxPlaces are kept apart.
  std::vector<std::pair<std::string, std::uint64_t>> places;
};

inline constexpr std::size_t kMaxPlaces = 16;

/// By total time, longest first.
[[nodiscard]] LOOM_API std::vector<FallbackEntry> fallback_report();
LOOM_API void reset_fallback_report();
/// How many fallbacks were taken since the last reset.
[[nodiscard]] LOOM_API std::uint64_t fallback_count() noexcept;

/// Says where in the user's program the calling thread is ("file.py:12"), or an empty string.
using PlaceProvider = std::string (*)();
LOOM_API void set_place_provider(PlaceProvider provider) noexcept;

/// Called by the fallback.
void note_fallback(const std::string& name, std::int64_t ns);

}  // namespace loom::ops
