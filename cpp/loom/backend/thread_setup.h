// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What ATen needs around the code of a loom thread. Private to backend/.

namespace loom {

/// A ThreadWrapper (device/thread.h): runs `body` below autograd, without gradients, and with the
/// thread's own OpenMP and MKL teams limited to itself, and its warnings kept for the host
/// (kernel_warnings.h). Settings of other threads, present and future, stay as they are.
void run_loom_thread(void (*body)(void*), void* context);

}  // namespace loom
