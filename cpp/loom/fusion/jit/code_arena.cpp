// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/code_arena.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace loom::fusion::jit {

CodeArena::CodeArena() noexcept : owner_(getpid()) {}

CodeArena& CodeArena::of_process() {
  // In place: kernels that run without host memory give and take code, too.
  alignas(CodeArena) static std::byte place[sizeof(CodeArena)];
  static auto* const arena = new (place) CodeArena;
  return *arena;
}

std::size_t CodeArena::class_of(std::size_t bytes) noexcept {
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallest));
  return static_cast<std::size_t>(std::countr_zero(size) - std::countr_zero(kSmallest));
}

bool CodeArena::map_chunk() {
  const int file = memfd_create("loom-code", MFD_CLOEXEC);
  if (file < 0) return false;
  const auto map = [file](int protection) {
    return mmap(nullptr, kChunk, protection, MAP_SHARED, file, 0);
  };
  void* const writable = ftruncate(file, kChunk) == 0 ? map(PROT_READ | PROT_WRITE) : MAP_FAILED;
  void* const executable = writable != MAP_FAILED ? map(PROT_READ | PROT_EXEC) : MAP_FAILED;
  close(file);
  if (executable == MAP_FAILED) {
    if (writable != MAP_FAILED) munmap(writable, kChunk);
    return false;
  }
  madvise(writable, kChunk, MADV_DONTFORK);
  rest_ = {static_cast<std::byte*>(writable), static_cast<std::byte*>(executable)};
  rest_bytes_ = kChunk;
  return true;
}

CodeArena::Block CodeArena::take(std::size_t bytes) {
  // Before the lock: another thread may have held it at the fork.
  const std::size_t size_class = class_of(bytes);
  if (getpid() != owner_ || size_class >= kClasses) return {};
  const MutexLock lock(mutex_);
  if (Block& first = free_[size_class]; first.writable != nullptr) {
    const Block block = first;
    std::memcpy(&first, block.writable, sizeof(first));
    return block;
  }
  const std::size_t size = kSmallest << size_class;
  if (rest_bytes_ < size) {
    if (refused_) return {};
    refused_ = !map_chunk();
    if (refused_) return {};
  }
  const Block block = rest_;
  rest_ = {rest_.writable + size, rest_.executable + size};
  rest_bytes_ -= size;
  return block;
}

void CodeArena::give(Block block, std::size_t bytes) noexcept {
  if (getpid() != owner_) return;
  const MutexLock lock(mutex_);
  Block& first = free_[class_of(bytes)];
  std::memcpy(block.writable, &first, sizeof(first));
  first = block;
}

}  // namespace loom::fusion::jit
