// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Memory with machine code. No mapping is ever writable and executable at once, which hardened
// hosts refuse: pages of a memory file are mapped twice, once to be written and once to be run.
// Where that may not be, and in children of fork(), which share such pages with their parent, code
// has private pages that are written first and made executable then. That costs ten microseconds.
// Thread: any; code may run while other code is made and freed.

#include <cstddef>
#include <span>

namespace loom::fusion::jit {

class Code {
 public:
  /// A copy of `instructions` that can be run; empty if the host does not let that be.
  explicit Code(std::span<const std::byte> instructions) noexcept;
  Code(Code&& other) noexcept;
  Code& operator=(Code&& other) = delete;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code();

  [[nodiscard]] const void* entry() const noexcept { return executable_; }

 private:
  std::byte* executable_ = nullptr;
  std::byte* writable_ = nullptr;  ///< the same bytes; null if the pages are private
  std::size_t bytes_ = 0;
};

}  // namespace loom::fusion::jit
