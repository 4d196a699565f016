// SPDX-License-Identifier: BSD-3-Clause
// What a library that is linked for an older glibc (LOOM_GLIBC_STUBS) would lack there. Included
// headers of the C++ library ask for these names wherever it is compiled with a newer glibc. No
// header is included here that declares them otherwise.

#include <sys/syscall.h>

extern "C" {

long syscall(long number, ...) noexcept;

/// Since glibc 2.32: whether a process has one thread, where reference counts need not be atomic.
/// They are.
[[gnu::visibility("hidden")]] char __libc_single_threaded = 0;

/// Since glibc 2.30.
[[gnu::visibility("hidden")]] int gettid() noexcept {
  return static_cast<int>(syscall(SYS_gettid));
}

}  // extern "C"
