// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Bytes from one rank to another, in memory that both have mapped: one writes, one reads. The
// memory is mapped twice in a row, so that what is written or read at once is always one range.
// Between hosts each of the two has a ring of its own, and a carrier (carrier.h) is its other side.
// Thread: one writer and one reader, in whichever processes.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace loom::collectives {

/// Lies in shared memory, zeroed at first: how many bytes have ever been written and read.
struct RingEnds {
  // Release by its one writer, acquire by the other side: the bytes themselves are visible to who
  // sees `written`, and may be overwritten by who sees `read`.
  alignas(64) std::atomic<std::uint64_t> written{0};
  alignas(64) std::atomic<std::uint64_t> read{0};
};

class Ring {
 public:
  Ring() = default;
  /// `bytes`: of one of the two mappings that begin at `data`; a power of two.
  Ring(RingEnds& ends, std::byte* data, std::size_t bytes) noexcept
      : ends_(&ends), data_(data), bytes_(bytes) {}

  [[nodiscard]] std::size_t capacity() const noexcept { return bytes_; }

  // For the writer.
  [[nodiscard]] std::size_t room() const noexcept {
    return bytes_ - static_cast<std::size_t>(ends_->written.load(std::memory_order_relaxed) -
                                             ends_->read.load(std::memory_order_acquire));
  }
  /// Where the next bytes go, up to room().
  [[nodiscard]] std::byte* writable() const noexcept {
    return data_ + (ends_->written.load(std::memory_order_relaxed) & (bytes_ - 1));
  }
  void publish(std::size_t bytes) const noexcept {
    const std::uint64_t written = ends_->written.load(std::memory_order_relaxed);
    ends_->written.store(written + bytes, std::memory_order_release);
  }

  // For the reader.
  [[nodiscard]] std::size_t available() const noexcept {
    return static_cast<std::size_t>(ends_->written.load(std::memory_order_acquire) -
                                    ends_->read.load(std::memory_order_relaxed));
  }
  /// The next bytes, up to available().
  [[nodiscard]] const std::byte* readable() const noexcept {
    return data_ + (ends_->read.load(std::memory_order_relaxed) & (bytes_ - 1));
  }
  void release(std::size_t bytes) const noexcept {
    const std::uint64_t read = ends_->read.load(std::memory_order_relaxed);
    ends_->read.store(read + bytes, std::memory_order_release);
  }

  // For a carrier, whose bytes stay in the ring until the other host's reader has read them.
  /// How many bytes have ever been written, and read.
  [[nodiscard]] std::uint64_t written() const noexcept {
    return ends_->written.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t read() const noexcept {
    return ends_->read.load(std::memory_order_acquire);
  }
  /// The bytes from the `position`th on, in [read(), written()).
  [[nodiscard]] const std::byte* readable_from(std::uint64_t position) const noexcept {
    return data_ + (position & (bytes_ - 1));
  }
  /// Releases what lies before the `position`th.
  void release_until(std::uint64_t position) const noexcept {
    ends_->read.store(position, std::memory_order_release);
  }

 private:
  RingEnds* ends_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace loom::collectives
