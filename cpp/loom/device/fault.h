// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// In isolated mode a host access to a device address faults, and in a child of fork() any access to
// device memory does. The handler here writes one message naming the address, the device and, if a
// describer is set, the allocation, and ends the process with SIGSEGV's default action. Every other
// fault goes on to the handler that was there before.

#include "loom/base/export.h"

#include <cstddef>

namespace loom {

/// Writes a description of the allocation that holds `device_address` into `text` (at most `size`
/// bytes, null-terminated) and returns true; false when unknown. Runs inside a signal handler:
/// must neither allocate nor wait for a lock.
using FaultDescriber = bool (*)(const void* device_address, char* text, std::size_t size) noexcept;

LOOM_API void set_fault_describer(FaultDescriber describer) noexcept;

/// Installs the handler; called when the reservation is made in isolated mode. Idempotent.
/// Throws: loom::Error when the system refuses.
LOOM_API void install_fault_handler();

/// Installs the handler, if it is not yet, and has its messages say that this process is a child.
/// Called in the child of fork(); safe there.
void note_forked_child_to_fault_handler() noexcept;

}  // namespace loom
