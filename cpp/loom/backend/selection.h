// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the calling thread has chosen: its current device and the current stream of each device.
// Private to backend/. All members are trivial, so that destructors of other thread-local objects
// may still use them while a thread ends.

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <limits>

namespace loom {

class Queue;

namespace detail {

// A table of all is small: libraries that are opened late share little static thread-local storage.
inline constexpr int kMaxDevices = 32;
static_assert(kMaxDevices <= std::numeric_limits<c10::DeviceIndex>::max());

/// The part that every launch reads. `queue` is the current queue of `device`, or null while that
/// is still the default queue of a device that this thread has not used yet.
struct Selection {
  c10::DeviceIndex device = 0;
  Queue* queue = nullptr;
};

// 16 bytes of static thread-local storage: one load relative to the thread pointer instead of a
// call, also in a library that Python has opened at run time.
extern thread_local constinit Selection t_selection __attribute__((tls_model("initial-exec")));

/// The current queues of all devices; null as in Selection.
extern thread_local constinit std::array<Queue*, kMaxDevices> t_queues;

/// The element of a device in a table of all. Requires: 0 <= index < kMaxDevices.
template <class T>
[[nodiscard]] T& slot_of(std::array<T, kMaxDevices>& table, int index) noexcept {
  return table[static_cast<std::size_t>(index)];
}

}  // namespace detail
}  // namespace loom
