// SPDX-License-Identifier: BSD-3-Clause
// Whose memory an address is, for tools, for names that users give, and for the fault handler.
#include "loom/device/queue.h"
#include "loom/memory/allocator_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace loom {
namespace {

using detail::Block;
using detail::BlockState;

/// Appends to a fixed buffer, cutting what does not fit. Async-signal-safe, unlike printf.
class TextWriter {
 public:
  TextWriter(char* text, std::size_t size) : next_(text), end_(text + size - 1) { *next_ = '\0'; }

  TextWriter& operator<<(std::string_view part) noexcept {
    const std::size_t length = std::min(part.size(), static_cast<std::size_t>(end_ - next_));
    std::memcpy(next_, part.data(), length);
    next_ += length;
    *next_ = '\0';
    return *this;
  }
  TextWriter& operator<<(std::size_t number) noexcept { return write(number, 10); }
  TextWriter& write_address(const void* address) noexcept {
    *this << "0x";
    return write(reinterpret_cast<std::uintptr_t>(address), 16);
  }

 private:
  TextWriter& write(std::size_t number, std::size_t base) noexcept {
    std::array<char, 20> digits;
    std::size_t first = digits.size();
    do {
      digits[--first] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    return *this << std::string_view(&digits[first], digits.size() - first);
  }

  char* next_;
  char* const end_;
};

void write_block(const Block& block, const std::byte* address, TextWriter& out) noexcept {
  switch (block.state) {
    case BlockState::kAllocated:
      out << "allocation ";
      if (block.notes != nullptr && !block.notes->name.empty()) {
        out << "'" << std::string_view(block.notes->name) << "' ";
      }
      out << "of " << block.requested << " bytes";
      break;
    case BlockState::kPending:
      out << "memory freed by the host and still used by another stream, " << block.size
          << " bytes";
      break;
    case BlockState::kFree:
      out << "freed memory, a cached block of " << block.size << " bytes";
      break;
  }
  out << " at ";
  out.write_address(block.address)
      << " (the address is " << static_cast<std::size_t>(address - block.address)
      << " bytes into it)";
}

}  // namespace

CachingAllocator::State::Block* CachingAllocator::State::block_around(const void* address) const {
  const Segment* segment = table.find(address);
  if (segment == nullptr) return nullptr;
  return segment->index.containing(static_cast<const std::byte*>(address));
}

std::optional<BlockSnapshot> CachingAllocator::find(const void* address) const {
  MutexLock lock(state_->mutex);
  const Block* block = state_->block_around(address);
  if (block == nullptr || block->state != BlockState::kAllocated) return std::nullopt;
  return State::snapshot_of(*block);
}

bool CachingAllocator::set_name(const void* address, std::string name) {
  MutexLock lock(state_->mutex);
  Block* block = state_->block_around(address);
  if (block == nullptr || block->state != BlockState::kAllocated) return false;
  block->make_notes().name = std::move(name);
  return true;
}

bool CachingAllocator::describe(const void* address, char* text, std::size_t size) const noexcept {
  if (size == 0 || !state_->mutex.try_lock()) return false;
  const Block* block = state_->block_around(address);
  if (block != nullptr) {
    TextWriter out(text, size);
    write_block(*block, static_cast<const std::byte*>(address), out);
    const auto device = static_cast<std::size_t>(state_->device);
    out << " of device " << device;
  }
  state_->mutex.unlock();
  return block != nullptr;
}

}  // namespace loom
