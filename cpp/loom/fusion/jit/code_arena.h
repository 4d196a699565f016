// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Pages for machine code that are mapped twice, in blocks of a few sizes. Blocks that are given
// back serve again; pages are never returned to the system.
// Thread: any.

#include "loom/base/mutex.h"

#include <array>
#include <cstddef>
#include <sys/types.h>

namespace loom::fusion::jit {

class CodeArena {
 public:
  struct Block {
    std::byte* writable = nullptr;
    std::byte* executable = nullptr;
  };

  CodeArena() noexcept;
  CodeArena(const CodeArena&) = delete;
  CodeArena& operator=(const CodeArena&) = delete;

  /// The arena of this process. Never destroyed: code may run until the process ends.
  [[nodiscard]] static CodeArena& of_process();

  /// At least `bytes`, aligned to 64; empty where there is none to be had, and in a child of
  /// fork(): its pages are those of its parent.
  [[nodiscard]] Block take(std::size_t bytes);
  /// Requires: from take(bytes). Does nothing in a child of fork().
  void give(Block block, std::size_t bytes) noexcept;

 private:
  static constexpr std::size_t kSmallest = 512, kClasses = 9, kChunk = 1 << 20;

  [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept;
  bool map_chunk() LOOM_REQUIRES(mutex_);

  const pid_t owner_;
  Mutex mutex_;
  /// By class: the block that was given back last, in which the one before it stands.
  std::array<Block, kClasses> free_ LOOM_GUARDED_BY(mutex_);
  Block rest_ LOOM_GUARDED_BY(mutex_);  ///< of the newest chunk
  std::size_t rest_bytes_ LOOM_GUARDED_BY(mutex_) = 0;
  bool refused_ LOOM_GUARDED_BY(mutex_) = false;
};

}  // namespace loom::fusion::jit
