// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An arena is a device's memory: a range of the shared reservation from which segments (2 MiB
// granules, huge pages advised) are mapped and given back to the system. It is what the caching
// allocator takes its segments from. Thread: all members may be called from any thread.

#include "loom/base/export.h"
#include "loom/base/mutex.h"

#include <cstddef>
#include <map>

namespace loom {

/// Where an allocator gets memory from. Implemented by Arena, and by fakes in tests.
class LOOM_API SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  /// Maps `bytes` (rounded up to the granularity) of zeroed memory and returns its device address;
  /// null when the limit or the system refuses, and for 0 bytes.
  [[nodiscard]] virtual void* map_segment(std::size_t bytes) = 0;
  /// Gives a whole segment back to the system; null is ignored.
  /// Requires: mapped with the same `bytes`.
  virtual void unmap_segment(void* segment, std::size_t bytes) noexcept = 0;
  /// Segments are multiples of this, and aligned to it.
  [[nodiscard]] virtual std::size_t granularity() const noexcept = 0;
  /// Bytes that may be mapped at once.
  [[nodiscard]] virtual std::size_t limit() const noexcept = 0;
  /// Bytes that are mapped now.
  [[nodiscard]] virtual std::size_t mapped() const = 0;
};

/// The memory of one device.
class LOOM_API Arena final : public SegmentSource {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  /// Takes addresses for `limit` bytes of `device` from the reservation; twice as many, so that
  /// fragmentation of addresses does not fail a request that the limit allows.
  /// Throws: loom::Error when there is no room.
  Arena(int device, std::size_t limit);
  /// Gives all memory and addresses back. Requires: nobody uses its segments.
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] void* map_segment(std::size_t bytes) override;
  void unmap_segment(void* segment, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t granularity() const noexcept override;
  [[nodiscard]] std::size_t limit() const noexcept override;
  [[nodiscard]] std::size_t mapped() const override;

 private:
  using Ranges = std::map<std::byte*, std::size_t>;

  /// Moves a range to used_. Throws: std::bad_alloc; then nothing has changed.
  [[nodiscard]] std::byte* take_range(std::size_t bytes) LOOM_REQUIRES(mutex_);
  /// Moves it back. Needs no memory: the entry is the same.
  void give_range(std::byte* begin) noexcept LOOM_REQUIRES(mutex_);

  const std::size_t limit_;
  const std::size_t reserved_;
  std::byte* const begin_;
  mutable Mutex mutex_;
  std::size_t mapped_ LOOM_GUARDED_BY(mutex_) = 0;
  // Free ranges of addresses, start -> bytes; no two touch.
  Ranges free_ LOOM_GUARDED_BY(mutex_);
  // Those of segments.
  Ranges used_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace loom
