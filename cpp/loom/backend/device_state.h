// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The current device, a property of each thread (0 at its start). Setting it creates nothing: a
// device is made by its first use. Thread: everything here may be called from any thread and
// affects the calling thread only.

#include "loom/base/export.h"
#include "loom/device/device_count.h"  // IWYU pragma: export

#include <c10/core/Device.h>

namespace loom {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

/// The c10 device of an index.
[[nodiscard]] inline c10::Device to_c10(c10::DeviceIndex index) noexcept {
  return c10::Device(kDeviceType, index);
}

/// As device_count(), but 0 where that throws (a bad LOOM_* variable, a forked child): for c10's
/// interfaces that may not throw. The error itself comes with the first real use.
[[nodiscard]] LOOM_API c10::DeviceIndex device_count_or_zero() noexcept;

/// `index`, or the current device for -1.
/// Throws: c10::Error "<api>: expected a device index in [0, n), got i".
[[nodiscard]] LOOM_API c10::DeviceIndex resolve_device(c10::DeviceIndex index, const char* api);

/// As above for a c10::Device, which must be of loom's type.
[[nodiscard]] LOOM_API c10::DeviceIndex resolve_device(c10::Device device, const char* api);

[[nodiscard]] LOOM_API c10::DeviceIndex current_device() noexcept;

/// Throws: c10::Error when there is no such device.
LOOM_API void set_device(c10::DeviceIndex index);

/// As set_device(), and returns the device that was current before.
LOOM_API c10::DeviceIndex exchange_device(c10::DeviceIndex index);

/// As exchange_device(), but a negative index changes nothing and gives -1.
LOOM_API c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex index);

/// For destructors: restores a device that was current before; an index that no device has is
/// ignored.
LOOM_API void set_device_unchecked(c10::DeviceIndex index) noexcept;

/// Throws: c10::Error when `device` is not one of loom's devices.
LOOM_API void check_device(c10::Device device, const char* api);

/// Waits for all streams of a device (-1 = the current one).
/// Throws: the first error of a command that was not reported yet.
/// Requires: the GIL is not held.
LOOM_API void synchronize(c10::DeviceIndex device = -1);

/// True once this device has been made, which the first use of any device does.
[[nodiscard]] LOOM_API bool device_initialized(c10::DeviceIndex index) noexcept;

}  // namespace loom
