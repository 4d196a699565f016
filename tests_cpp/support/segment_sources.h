// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Segment sources for tests: one on ordinary host memory that counts and can be told to fail.
// Device and host addresses are the same in unified mode, so its memory may be read and written.
// Thread: any.

#include "loom/base/check.h"
#include "loom/base/mutex.h"
#include "loom/device/arena.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

namespace loom::testing {

/// Hands out zeroed host memory, keeps the numbers, and refuses when told to.
class FakeSegmentSource : public SegmentSource {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  explicit FakeSegmentSource(std::size_t limit = std::size_t{1} << 30) : limit_(limit) {}
  ~FakeSegmentSource() override {
    MutexLock lock(mutex_);
    for (const auto& [segment, bytes] : live_) std::free(segment);
  }

  [[nodiscard]] void* map_segment(std::size_t bytes) override {
    bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    MutexLock lock(mutex_);
    ++map_calls_;
    if (fail_after_ == 0 || bytes == 0 || bytes > limit_ - mapped_) {
      ++refused_;
      return nullptr;
    }
    if (fail_after_ > 0) --fail_after_;
    std::unique_ptr<void, decltype(&std::free)> segment(std::aligned_alloc(kGranularity, bytes),
                                                        &std::free);
    if (segment == nullptr) return nullptr;
    std::memset(segment.get(), 0, bytes);
    live_.emplace(segment.get(), bytes);  // may fail, where tests let host memory run out
    mapped_ += bytes;
    return segment.release();
  }

  void unmap_segment(void* segment, std::size_t bytes) noexcept override {
    bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    MutexLock lock(mutex_);
    ++unmap_calls_;
    const auto found = live_.find(segment);
    LOOM_ASSERT(found != live_.end(), "a segment is unmapped that is not mapped");
    LOOM_ASSERT(found->second == bytes, "a segment is unmapped with another size");
    mapped_ -= bytes;
    live_.erase(found);
    std::free(segment);
  }

  [[nodiscard]] std::size_t granularity() const noexcept override { return kGranularity; }
  [[nodiscard]] std::size_t limit() const noexcept override { return limit_; }
  [[nodiscard]] std::size_t mapped() const override {
    MutexLock lock(mutex_);
    return mapped_;
  }

  /// Lets `calls` more requests succeed, then refuses all; -1 = refuses none.
  void fail_after(int calls) {
    MutexLock lock(mutex_);
    fail_after_ = calls;
  }

  [[nodiscard]] int map_calls() const { return read(map_calls_); }
  [[nodiscard]] int unmap_calls() const { return read(unmap_calls_); }
  /// Requests that were not met, for the limit or because fail_after() said so.
  [[nodiscard]] int refused() const { return read(refused_); }
  [[nodiscard]] int live_segments() const {
    MutexLock lock(mutex_);
    return static_cast<int>(live_.size());
  }

 private:
  [[nodiscard]] int read(const int& counter) const {
    MutexLock lock(mutex_);
    return counter;
  }

  const std::size_t limit_;
  mutable Mutex mutex_;
  std::map<void*, std::size_t> live_ LOOM_GUARDED_BY(mutex_);
  std::size_t mapped_ LOOM_GUARDED_BY(mutex_) = 0;
  int fail_after_ LOOM_GUARDED_BY(mutex_) = -1;
  int map_calls_ LOOM_GUARDED_BY(mutex_) = 0;
  int unmap_calls_ LOOM_GUARDED_BY(mutex_) = 0;
  int refused_ LOOM_GUARDED_BY(mutex_) = 0;
};

}  // namespace loom::testing
