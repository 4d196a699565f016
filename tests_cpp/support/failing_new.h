// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// operator new for a whole test program: as it is, but for threads that ask it to fail. Included by
// one source file of the program.

#include <cstddef>
#include <cstdlib>
#include <new>

namespace loom::testing {

/// How many allocations of this thread still succeed; negative = all.
inline thread_local int t_allocations_left = -1;

inline void* allocate_or_fail(std::size_t bytes) {
  if (t_allocations_left == 0) throw std::bad_alloc();
  if (t_allocations_left > 0) --t_allocations_left;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// While it lives, only the first `spared` allocations of this thread succeed.
class FailingNew {
 public:
  explicit FailingNew(int spared) noexcept { t_allocations_left = spared; }
  ~FailingNew() { t_allocations_left = -1; }
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
};

}  // namespace loom::testing

// Not inlined: the compiler would see malloc() paired with operator delete.
#define LOOM_NOINLINE __attribute__((noinline))
LOOM_NOINLINE void* operator new(std::size_t bytes) {
  return loom::testing::allocate_or_fail(bytes);
}
LOOM_NOINLINE void* operator new[](std::size_t bytes) {
  return loom::testing::allocate_or_fail(bytes);
}
LOOM_NOINLINE void operator delete(void* memory) noexcept { std::free(memory); }
LOOM_NOINLINE void operator delete[](void* memory) noexcept { std::free(memory); }
LOOM_NOINLINE void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
LOOM_NOINLINE void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#undef LOOM_NOINLINE
