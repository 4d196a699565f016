// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What generated kernels (torch.compile) and packages of them call. A group of loop nests is one
// command of the current stream: loom_kernel_launch() copies the arguments into it and returns, and
// the stream's worker calls the body, which runs each nest as a grid of blocks by
// loom_kernel_run_blocks(). The interface is C's, for code that is compiled where loom's headers
// are not. It is declared again for that code in python/torch_loom/include/torch_loom/kernel.h; the
// two change together. Thread: launches by any, the current stream is the calling thread's; bodies
// on the worker.

#include "loom/base/export.h"

#include <cstdint>

extern "C" {

/// How a kernel uses an argument.
enum LoomKernelAccess : std::uint32_t {
  kLoomKernelValue = 0,    ///< a number, or the bytes of a host scalar: `value` itself
  kLoomKernelRead = 1,     ///< the others are memory at the device address `value`
  kLoomKernelUpdate = 2,   ///< some is written, or what is written depends on what it held
  kLoomKernelReplace = 3,  ///< every byte is written, whatever it held
};

struct LoomKernelArgument {
  std::uint64_t value;
  std::uint64_t bytes;  ///< of memory, from the address on; 0: there is nothing to touch
  std::uint32_t access;
};

/// What a body runs blocks with; valid while the body runs.
struct LoomKernelGrid;

/// A generated kernel. It sees the arguments of its launch, addresses of memory as it may touch
/// them. It may throw: the error is the command's.
using LoomKernelBody = void (*)(const LoomKernelGrid* grid, const LoomKernelArgument* arguments);

/// Queues body(arguments) on the current stream of `device`. `name` is the kernel's in errors and
/// profiles; like the body it lives as long as the process.
/// Throws: c10::Error when there is no such device; with LOOM_LAUNCH_BLOCKING=1 what the body
/// throws.
LOOM_API void loom_kernel_launch(std::int64_t device, const char* name, LoomKernelBody body,
                                 const LoomKernelArgument* arguments, std::int64_t count);

/// Calls block(context, i) for each i in [0, blocks), on the device's cores; returns when all have
/// run. Blocks must touch nothing that has settings of its thread, and write nothing but their
/// part. Throws: the first error of a block.
LOOM_API void loom_kernel_run_blocks(const LoomKernelGrid* grid, std::int64_t blocks,
                                     void (*block)(void* context, std::int64_t index),
                                     void* context);

/// Waits for all streams of `device`. Throws: the first error of a command that was not reported.
LOOM_API void loom_kernel_synchronize(std::int64_t device);

}  // extern "C"
