// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/command_buffer.h"

#include <algorithm>

namespace loom {
namespace {

// Spare chunks kept for the next burst: 4 MiB.
constexpr std::size_t kMaxSpare = 64;
constexpr std::align_val_t kChunkAlignment{CommandBuffer::kMaxAlignment};
constexpr std::size_t kFirstOffset = 16;

}  // namespace

CommandBuffer::CommandBuffer() = default;

CommandBuffer::~CommandBuffer() {
  if (in_bad_fork()) return;  // what its commands hold is the parent's
  while (read_.chunk != write_.chunk || read_.offset != write_.offset) {
    // The last chunk may end with a link that nothing follows.
    if (header_at(read_)->ops == nullptr) {
      Chunk* const finished = read_.chunk;
      follow_link(read_);
      recycle(finished);
    } else {
      pop();
    }
  }
  if (read_.chunk != nullptr) recycle(read_.chunk);
  MutexLock lock(spare_mutex_);
  while (spare_ != nullptr) {
    Chunk* const next = spare_->next;
    ::operator delete(spare_, kChunkAlignment);
    spare_ = next;
  }
}

void CommandBuffer::follow_link(Cursor& cursor) noexcept {
  cursor.chunk = cursor.chunk->next;
  cursor.offset = kFirstOffset;
}

void CommandBuffer::link_new_chunk(std::size_t bytes) {
  Chunk* const chunk = take_chunk(bytes);
  if (write_.chunk == nullptr) {
    // The first command: the consumer looks only after it has been published.
    read_ = Cursor{chunk, kFirstOffset};
  } else {
    ::new (header_at(write_)) detail::CommandHeader{};
    write_.chunk->next = chunk;
  }
  write_.chunk = chunk;
  write_.offset = kFirstOffset;
}

CommandBuffer::Chunk* CommandBuffer::take_chunk(std::size_t bytes) {
  const std::size_t needed = kFirstOffset + bytes + sizeof(detail::CommandHeader);
  if (needed <= kChunkBytes) {
    MutexLock lock(spare_mutex_);
    if (spare_ != nullptr) {
      Chunk* const chunk = spare_;
      spare_ = chunk->next;
      --spare_count_;
      return chunk;
    }
  }
  const std::size_t size = std::max(needed, kChunkBytes);
  Chunk* const chunk = ::new (::operator new(size, kChunkAlignment)) Chunk;
  chunk->bytes = size;
  return chunk;
}

void CommandBuffer::recycle(Chunk* chunk) noexcept {
  if (chunk->bytes == kChunkBytes && !in_bad_fork()) {
    MutexLock lock(spare_mutex_);
    if (spare_count_ < kMaxSpare) {
      chunk->next = spare_;
      spare_ = chunk;
      ++spare_count_;
      return;
    }
  }
  ::operator delete(chunk, kChunkAlignment);
}

}  // namespace loom
