// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Memory before and behind which nobody may touch anything: a stray access ends the process.

#include <cstddef>
#include <stdexcept>
#include <sys/mman.h>

namespace loom::fusion::testing {

class GuardedMemory {
 public:
  /// `at_end`: the bytes end where the memory does, otherwise they begin with it.
  GuardedMemory(std::size_t bytes, bool at_end) {
    constexpr std::size_t kPage = 4096;
    const std::size_t inside = (bytes + kPage - 1) / kPage * kPage;
    all_ = inside + 2 * kPage;
    memory_ = mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error("no memory");
    std::byte* const first = static_cast<std::byte*>(memory_) + kPage;
    if (inside > 0) mprotect(first, inside, PROT_READ | PROT_WRITE);
    data_ = at_end ? first + inside - bytes : first;
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(memory_, all_); }

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  void* memory_ = nullptr;
  std::size_t all_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace loom::fusion::testing
