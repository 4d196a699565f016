// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/code.h"

#include "loom/base/ceil_div.h"
#include "loom/fusion/jit/code_arena.h"

#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace loom::fusion::jit {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return round_up(bytes, kPage);
}

/// Null if the host does not let that be.
std::byte* private_copy(std::span<const std::byte> instructions) {
  const std::size_t bytes = whole_pages(instructions.size());
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, instructions.data(), instructions.size());
  if (mprotect(memory, bytes, PROT_READ | PROT_EXEC) == 0) return static_cast<std::byte*>(memory);
  munmap(memory, bytes);
  return nullptr;
}

}  // namespace

Code::Code(std::span<const std::byte> instructions) noexcept : bytes_(instructions.size()) {
  const CodeArena::Block block = CodeArena::of_process().take(bytes_);
  if (block.writable == nullptr) {
    executable_ = private_copy(instructions);
    return;
  }
  std::memcpy(block.writable, instructions.data(), bytes_);
  writable_ = block.writable;
  executable_ = block.executable;
}

Code::Code(Code&& other) noexcept
    : executable_(std::exchange(other.executable_, nullptr)),
      writable_(std::exchange(other.writable_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Code::~Code() {
  if (executable_ == nullptr) return;
  if (writable_ != nullptr) {
    CodeArena::of_process().give({writable_, executable_}, bytes_);
  } else {
    munmap(executable_, whole_pages(bytes_));
  }
}

}  // namespace loom::fusion::jit
