// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Host memory that queued commands hold beside themselves: staged copies, recorded programs. A host
// program that runs ahead may fill the machine with it long before its queue is too long, so who
// submits such a command asks for room first. One count for the process. What a captured graph
// holds is not counted: it stays as long as the graph, however long the program waits.
// Thread: any.

#include "loom/base/export.h"

#include <atomic>
#include <cstddef>
#include <utility>

namespace loom {

class Queue;

class LOOM_API HeldMemory {
 public:
  /// What queued commands may hold before a host thread that submits more of them is held.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  HeldMemory() = default;
  ~HeldMemory() { set(0); }
  HeldMemory(HeldMemory&& other) noexcept
      : bytes_(std::exchange(other.bytes_, 0)), counts_(other.counts_) {}
  HeldMemory& operator=(HeldMemory&& other) noexcept {
    set(0);
    bytes_ = std::exchange(other.bytes_, 0);
    counts_ = other.counts_;
    return *this;
  }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

  /// Counts `bytes` for as long as this object lives.
  void set(std::size_t bytes) noexcept {
    if (!counts_) return;
    // Relaxed: a bound that is seen a little late does no harm; wraps around where it shrinks.
    total_.fetch_add(bytes - bytes_, std::memory_order_relaxed);
    bytes_ = bytes;
  }
  /// A graph has captured the command: this object counts nothing from now on.
  void note_captured() noexcept {
    set(0);
    counts_ = false;
  }
  /// What all queued commands hold.
  [[nodiscard]] static std::size_t total() noexcept {
    return total_.load(std::memory_order_relaxed);
  }

  /// Returns once queued commands hold less than kMostBytes, or this queue has run all that it was
  /// given. Threads of loom, captures and UnheldSubmissions are not held. Throws: as
  /// Queue::submit().
  static void make_room(Queue& queue) {
    if (total() >= kMostBytes) [[unlikely]]
      wait_for_room(queue);
  }

 private:
  static void wait_for_room(Queue& queue);

  static std::atomic<std::size_t> total_;
  std::size_t bytes_ = 0;
  bool counts_ = true;
};

}  // namespace loom
