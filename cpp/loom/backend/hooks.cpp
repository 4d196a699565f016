// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/hooks.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"
#include "loom/backend/generator.h"
#include "loom/backend/host_allocator.h"
#include "loom/backend/stream.h"
#include "loom/device/address.h"
#include "loom/device/device.h"
#include "loom/device/thread.h"
#include "loom/memory/pinned_pool.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace loom {

bool Hooks::isBuilt() const { return true; }

bool Hooks::isAvailable() const { return device_count_or_zero() > 0; }

bool Hooks::hasPrimaryContext(c10::DeviceIndex device_index) const {
  return device_initialized(device_index);
}

void Hooks::init() const {
  check_not_forked();
  static_cast<void>(device_count());
}

c10::DeviceIndex Hooks::deviceCount() const { return device_count_or_zero(); }

void Hooks::setCurrentDevice(c10::DeviceIndex device) const { set_device(device); }

c10::DeviceIndex Hooks::getCurrentDevice() const { return current_device(); }

c10::DeviceIndex Hooks::exchangeDevice(c10::DeviceIndex device) const {
  return exchange_device(device);
}

c10::DeviceIndex Hooks::maybeExchangeDevice(c10::DeviceIndex device) const {
  return maybe_exchange_device(device);
}

bool Hooks::isPinnedPtr(const void* data) const { return is_pinned(data); }

c10::Allocator* Hooks::getPinnedMemoryAllocator() const { return &host_allocator(); }

c10::Device Hooks::getDeviceFromPtr(void* data) const {
  const int index = device_of_address(data);
  TORCH_CHECK(index >= 0, "getDeviceFromPtr: expected an address of loom device memory, got ", data,
              ", which belongs to the host");
  return to_c10(static_cast<c10::DeviceIndex>(index));
}

const at::Generator& Hooks::getDefaultGenerator(c10::DeviceIndex device_index) const {
  return default_generator(device_index);
}

at::Generator Hooks::getNewGenerator(c10::DeviceIndex device_index) const {
  return at::make_generator<PhiloxGenerator>(resolve_device(device_index, "Generator"));
}

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t new_bytes) const {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "resize_: expected a resizable storage, got one that is not");
  const c10::Device device = storage.device();
  check_device(device, "resize_");
  const c10::DeviceGuard guard(device);
  Queue& queue = current_queue();
  c10::DataPtr data = allocate(new_bytes, queue);
  const c10::DataPtr& old = storage.data_ptr();
  if (const std::size_t kept = std::min(new_bytes, storage.nbytes()); old && kept > 0) {
    record_queue(old, queue);
    copy_device_bytes(data.get(), old.get(), kept, queue);
    // Stream order protects only what is freed through loom's allocator.
    if (old.get_deleter() != allocator().raw_deleter()) queue.synchronize();
  }
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(new_bytes);
}

}  // namespace loom
