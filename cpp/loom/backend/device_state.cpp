// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"

#include "loom/backend/cuda_name.h"
#include "loom/backend/selection.h"
#include "loom/device/device.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>

namespace loom {
namespace detail {

thread_local constinit Selection t_selection;
thread_local constinit std::array<Queue*, kMaxDevices> t_queues{};

}  // namespace detail

namespace {

c10::DeviceIndex checked_count() {
  return static_cast<c10::DeviceIndex>(std::min(device_count(), detail::kMaxDevices));
}

void check_index(c10::DeviceIndex index, const char* api) {
  const c10::DeviceIndex count = checked_count();
  // CUDA's words first, which programs look for.
  TORCH_CHECK(index >= 0 && index < count, cuda_name::in_messages(),
              " error: invalid device ordinal. ", api, ": expected a device index in [0, ",
              static_cast<int>(count), "), got ", static_cast<int>(index));
}

}  // namespace

c10::DeviceIndex device_count_or_zero() noexcept {
  try {
    return checked_count();
  } catch (const std::exception& error) {
    // Programs ask whether there is a device and go on without one: they should say why.
    static const bool warned = [&] {
      try {
        TORCH_WARN("loom is not available: ", error.what());
      } catch (...) {  // a warning made an error has no other way out of here
      }
      return true;
    }();
    (void)warned;
    return 0;
  }
}

c10::DeviceIndex resolve_device(c10::DeviceIndex index, const char* api) {
  if (index == -1) index = current_device();
  check_index(index, api);
  return index;
}

c10::DeviceIndex resolve_device(c10::Device device, const char* api) {
  TORCH_CHECK(device.type() == kDeviceType, api, ": expected a ",
              c10::DeviceTypeName(kDeviceType, true), " device, got ", device);
  return resolve_device(device.index(), api);
}

void check_device(c10::Device device, const char* api) {
  TORCH_CHECK(device.type() == kDeviceType, api, ": expected a ",
              c10::DeviceTypeName(kDeviceType, true), " device, got ", device);
  check_index(device.index(), api);
}

c10::DeviceIndex current_device() noexcept { return detail::t_selection.device; }

void set_device(c10::DeviceIndex index) {
  check_index(index, "set_device");
  set_device_unchecked(index);
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex previous = current_device();
  if (index == previous) return previous;
  check_index(index, "exchange_device");
  set_device_unchecked(index);
  return previous;
}

c10::DeviceIndex maybe_exchange_device(c10::DeviceIndex index) {
  return index < 0 ? c10::DeviceIndex{-1} : exchange_device(index);
}

void set_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index < 0 || index >= detail::kMaxDevices) return;
  detail::t_selection = {index, detail::slot_of(detail::t_queues, index)};
}

void synchronize(c10::DeviceIndex index) {
  device(resolve_device(index, "synchronize")).synchronize();
}

bool device_initialized(c10::DeviceIndex index) noexcept {
  return device_in_use() && index >= 0 && index < device_count_or_zero();
}

}  // namespace loom
