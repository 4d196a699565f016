// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/fallback_report.h"

#include "loom/base/mutex.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_map>

namespace loom::ops {
namespace {

struct Entry {
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;
  std::map<std::string, std::uint64_t> places;
};

struct Report {
  Mutex mutex;
  std::unordered_map<std::string, Entry> entries LOOM_GUARDED_BY(mutex);
};

// Leaked: operators may run in static destructors.
Report& report() {
  static auto* report = new Report;
  return *report;
}

// A count for tests and for the cheap question "did anything fall back"; orders nothing.
std::atomic<std::uint64_t> g_count{0};
// Set once when the Python module loads; the function pointer is all there is to publish.
std::atomic<PlaceProvider> g_place_provider{nullptr};

}  // namespace

void note_fallback(const std::string& name, std::int64_t ns) {
  const PlaceProvider provider = g_place_provider.load(std::memory_order_acquire);
  std::string place = provider == nullptr ? std::string() : provider();  // may take the GIL: first
  g_count.fetch_add(1, std::memory_order_relaxed);
  Report& all = report();
  MutexLock lock(all.mutex);
  Entry& entry = all.entries[name];
  entry.count += 1;
  entry.total_ns += ns;
  if (place.empty()) return;
  if (entry.places.size() >= kMaxPlaces && !entry.places.contains(place)) place = "(elsewhere)";
  entry.places[std::move(place)] += 1;
}

std::vector<FallbackEntry> fallback_report() {
  std::vector<FallbackEntry> rows;
  Report& all = report();
  {
    MutexLock lock(all.mutex);
    for (const auto& [name, entry] : all.entries) {
      rows.push_back(
          {name, entry.count, entry.total_ns, {entry.places.begin(), entry.places.end()}});
    }
  }
  for (FallbackEntry& row : rows) {
    std::stable_sort(row.places.begin(), row.places.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.total_ns > b.total_ns; });
  return rows;
}

void reset_fallback_report() {
  Report& all = report();
  MutexLock lock(all.mutex);
  all.entries.clear();
  g_count.store(0, std::memory_order_relaxed);
}

std::uint64_t fallback_count() noexcept { return g_count.load(std::memory_order_relaxed); }

void set_place_provider(PlaceProvider provider) noexcept {
  g_place_provider.store(provider, std::memory_order_release);
}

}  // namespace loom::ops
