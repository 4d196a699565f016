// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/code.h"

#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace loom::fusion::jit {

Code::Code(std::span<const std::byte> instructions) noexcept {
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = (instructions.size() + kPage - 1) / kPage * kPage;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  std::memcpy(memory, instructions.data(), instructions.size());
  if (mprotect(memory, bytes, PROT_READ | PROT_EXEC) != 0) {
    munmap(memory, bytes);
    return;
  }
  memory_ = memory;
  bytes_ = bytes;
}

Code::Code(Code&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Code::~Code() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace loom::fusion::jit
