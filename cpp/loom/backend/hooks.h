// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What ATen asks a backend outside of operators: availability, the current device, pinned memory,
// generators, resizing of storages. A thin adapter. Thread: any.

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace loom {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override;
  bool isAvailable() const override;
  bool hasPrimaryContext(c10::DeviceIndex device_index) const override;
  void init() const override;

  c10::DeviceIndex deviceCount() const override;
  void setCurrentDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex getCurrentDevice() const override;
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override;

  bool isPinnedPtr(const void* data) const override;
  c10::Allocator* getPinnedMemoryAllocator() const override;
  c10::Device getDeviceFromPtr(void* data) const override;

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device_index) const override;
  at::Generator getNewGenerator(c10::DeviceIndex device_index = -1) const override;

  /// Keeps the content; the copy runs on the current stream.
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t new_bytes) const override;
};

}  // namespace loom
