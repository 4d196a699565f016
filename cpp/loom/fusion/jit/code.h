// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Memory with machine code. No page is ever writable and executable at once.
// Thread: any; code may run while other code is made and freed.

#include <cstddef>
#include <span>

namespace loom::fusion::jit {

class Code {
 public:
  Code() = default;
  /// A copy of `instructions` that can be run; empty if the host does not let that be.
  explicit Code(std::span<const std::byte> instructions) noexcept;
  Code(Code&& other) noexcept;
  Code& operator=(Code&& other) = delete;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code();

  [[nodiscard]] const void* entry() const noexcept { return memory_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace loom::fusion::jit
