// SPDX-License-Identifier: BSD-3-Clause

// Loaded before all other libraries, this takes the place of operator new. Between loom_new_arm()
// and loom_new_disarm() it counts the allocations of libtorch_loom.so, those that the C++ library
// makes for it too (strings), on all threads, and lets some of them fail. If std::terminate() is
// called then, it prints where the allocation that failed was made, and what could not throw.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <execinfo.h>
#include <link.h>
#include <new>
#include <unistd.h>
#include <unwind.h>

namespace {

struct Code {
  std::uintptr_t begin = 0, end = 0;
  [[nodiscard]] bool holds(std::uintptr_t address) const {
    return address >= begin && address < end;
  }
};

Code g_loom, g_standard, g_own;

// Relaxed, all of them: whoever counts late counts in the next round.
std::atomic<bool> g_armed{false};
std::atomic<std::int64_t> g_seen{0}, g_first{0}, g_end{0}, g_failed{0};

constexpr int kFrames = 48;
void* g_frames[kFrames];
std::atomic<int> g_frame_count{0};

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

Code code_of(const dl_phdr_info& library) {
  Code code;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const auto& part = library.dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    code.begin = library.dlpi_addr + part.p_vaddr;
    code.end = code.begin + part.p_memsz;
  }
  return code;
}

int find_code(dl_phdr_info* library, std::size_t /*size*/, void* /*context*/) {
  const Code code = code_of(*library);
  if (std::strstr(library->dlpi_name, "libtorch_loom.so") != nullptr) g_loom = code;
  if (std::strstr(library->dlpi_name, "libstdc++.so") != nullptr) g_standard = code;
  if (code.holds(address_of(reinterpret_cast<const void*>(&find_code)))) g_own = code;
  return 0;
}

_Unwind_Reason_Code look_at_frame(_Unwind_Context* frame, void* found) {
  const std::uintptr_t address = _Unwind_GetIP(frame);
  if (g_own.holds(address) || g_standard.holds(address)) return _URC_NO_REASON;
  *static_cast<bool*>(found) = g_loom.holds(address);
  return _URC_NORMAL_STOP;
}

/// Whether the allocation whose caller returns to `address` is loom's.
bool is_of_loom(const void* address) {
  if (!g_standard.holds(address_of(address))) return g_loom.holds(address_of(address));
  bool found = false;
  _Unwind_Backtrace(&look_at_frame, &found);
  return found;
}

bool must_fail(const void* caller) {
  if (!g_armed.load(std::memory_order_relaxed) || !is_of_loom(caller)) return false;
  const std::int64_t number = g_seen.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < g_first.load(std::memory_order_relaxed) ||
      number >= g_end.load(std::memory_order_relaxed)) {
    return false;
  }
  if (g_failed.fetch_add(1, std::memory_order_relaxed) == 0) {
    g_frame_count.store(backtrace(g_frames, kFrames), std::memory_order_relaxed);
  }
  return true;
}

void print(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

[[noreturn]] void report_and_abort() {
  void* frames[kFrames];
  print("std::terminate() was called at\n");
  backtrace_symbols_fd(frames, backtrace(frames, kFrames), STDERR_FILENO);
  print("The first allocation that failed was made at\n");
  backtrace_symbols_fd(g_frames, g_frame_count.load(std::memory_order_relaxed), STDERR_FILENO);
  std::abort();
}

}  // namespace

extern "C" {

/// Finds the libraries. Requires: libtorch_loom.so is loaded.
bool loom_new_prepare() {
  dl_iterate_phdr(&find_code, nullptr);
  void* frames[1];
  (void)backtrace(frames, 1);  // loads what it needs
  std::set_terminate(&report_and_abort);
  return g_loom.end != 0 && g_standard.end != 0;
}

/// From now on `count` allocations fail, from the `first` one on, which is 1.
void loom_new_arm(std::int64_t first, std::int64_t count) {
  g_seen = g_failed = 0;
  g_first = first;
  g_end = first + count;
  g_armed = true;
}

/// Returns how many allocations there were; `failed` becomes how many of them failed.
std::int64_t loom_new_disarm(std::int64_t* failed) {
  g_armed = false;
  *failed = g_failed;
  return g_seen;
}

/// Prints where the first allocation that failed was made.
void loom_new_print() {
  backtrace_symbols_fd(g_frames, g_frame_count.load(std::memory_order_relaxed), STDERR_FILENO);
}
}

// The other forms of operator new call these two; those of operator delete call free().
void* operator new(std::size_t bytes) {
  if (must_fail(__builtin_return_address(0))) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (must_fail(__builtin_return_address(0))) throw std::bad_alloc();
  const auto unit = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
