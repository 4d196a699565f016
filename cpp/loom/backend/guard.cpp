// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/guard.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/base/process_state.h"
#include "loom/device/event.h"
#include "loom/device/queue.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdint>

namespace loom {
namespace {

EventTiming timing_of(c10::EventFlag flag) {
  switch (flag) {
    case c10::EventFlag::PYTORCH_DEFAULT:
      return EventTiming::kDisabled;
    case c10::EventFlag::BACKEND_DEFAULT:
      return EventTiming::kEnabled;
    default:
      TORCH_CHECK(false, "Event: expected PYTORCH_DEFAULT or BACKEND_DEFAULT as flag, got ",
                  static_cast<int>(flag));
  }
}

}  // namespace

c10::DeviceType GuardImpl::type() const { return kDeviceType; }

c10::Device GuardImpl::exchangeDevice(c10::Device device) const {
  TORCH_INTERNAL_ASSERT(device.type() == kDeviceType);
  return to_c10(exchange_device(device.index()));
}

c10::Device GuardImpl::getDevice() const { return to_c10(current_device()); }

void GuardImpl::setDevice(c10::Device device) const {
  TORCH_INTERNAL_ASSERT(device.type() == kDeviceType);
  set_device(device.index());
}

void GuardImpl::uncheckedSetDevice(c10::Device device) const noexcept {
  set_device_unchecked(device.index());
}

c10::DeviceIndex GuardImpl::deviceCount() const noexcept { return device_count_or_zero(); }

c10::DeviceCapability GuardImpl::getDeviceCapability(c10::Device device) const {
  static_cast<void>(resolve_device(device, "get_device_capability"));
  // Tensors of these can be made, and converted to each of the others. Quantized tensors need
  // more than a dtype, and of bits, integers below a byte and float4 there is nothing but names.
  constexpr std::array kSupported = {c10::kIndex_Bool,
                                     c10::kIndex_Byte,
                                     c10::kIndex_Char,
                                     c10::kIndex_Short,
                                     c10::kIndex_Int,
                                     c10::kIndex_Long,
                                     c10::kIndex_UInt16,
                                     c10::kIndex_UInt32,
                                     c10::kIndex_UInt64,
                                     c10::kIndex_Half,
                                     c10::kIndex_BFloat16,
                                     c10::kIndex_Float,
                                     c10::kIndex_Double,
                                     c10::kIndex_ComplexHalf,
                                     c10::kIndex_ComplexFloat,
                                     c10::kIndex_ComplexDouble,
                                     c10::kIndex_Float8_e5m2,
                                     c10::kIndex_Float8_e4m3fn,
                                     c10::kIndex_Float8_e8m0fnu,
                                     c10::kIndex_Float8_e5m2fnuz,
                                     c10::kIndex_Float8_e4m3fnuz};
  c10::DeviceCapability capability;
  capability.capability_data.capability_bits = 0;
  for (const c10::ScalarTypeIndex dtype : kSupported) {
    capability.capability_data.capability_bits |= std::uint64_t{1} << dtype;
  }
  return capability;
}

void GuardImpl::synchronizeDevice(c10::DeviceIndex device_index) const {
  synchronize(device_index);
}

c10::Stream GuardImpl::getStream(c10::Device device) const {
  // Autograd asks while it makes the node of a parameter, where nothing may be thrown.
  if (in_bad_fork()) return inherited_stream(device.index());
  return current_stream(resolve_device(device, "current_stream"));
}

c10::Stream GuardImpl::getDefaultStream(c10::Device device) const {
  return default_stream(resolve_device(device, "default_stream"));
}

c10::Stream GuardImpl::getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const {
  return stream_from_pool(is_high_priority, resolve_device(device, "stream_from_pool"));
}

c10::Stream GuardImpl::getNewStream(c10::Device device, int priority) const {
  return stream_from_pool(priority, resolve_device(device, "Stream"));
}

c10::Stream GuardImpl::exchangeStream(c10::Stream stream) const {
  const Stream next(stream);
  const c10::Stream previous = current_stream(stream.device_index());
  set_current_stream(next);
  return previous;
}

void* GuardImpl::getStreamNativeHandle(const c10::Stream stream) const { return &queue_of(stream); }

bool GuardImpl::queryStream(const c10::Stream& stream) const {
  const Queue& queue = queue_of(stream);
  queue.check_not_captured("Stream.query", "what its stream has captured has not run");
  return queue.idle();
}

void GuardImpl::synchronizeStream(const c10::Stream& stream) const {
  queue_of(stream).synchronize();
}

bool GuardImpl::isStreamCapturing(const c10::Stream& stream) const {
  return queue_of(stream).captured();
}

void GuardImpl::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
  record_queue(data, queue_of(stream));
}

void GuardImpl::record(void** event, const c10::Stream& stream, const c10::DeviceIndex device_index,
                       const c10::EventFlag flag) const {
  TORCH_CHECK(device_index == -1 || device_index == stream.device_index(),
              "Event.record: expected a stream of the event's device ", to_c10(device_index),
              ", got one of ", stream.device());
  Queue& queue = queue_of(stream);
  if (*event == nullptr) *event = new QueueEvent(timing_of(flag));
  static_cast<QueueEvent*>(*event)->record(queue);
}

void GuardImpl::block(void* event, const c10::Stream& stream) const {
  if (event == nullptr) return;
  static_cast<const QueueEvent*>(event)->block(queue_of(stream));
}

bool GuardImpl::queryEvent(void* event) const {
  return event == nullptr || static_cast<const QueueEvent*>(event)->query();
}

void GuardImpl::synchronizeEvent(void* event) const {
  if (event == nullptr) return;
  static_cast<const QueueEvent*>(event)->synchronize();
}

void GuardImpl::destroyEvent(void* event, const c10::DeviceIndex /*device_index*/) const noexcept {
  delete static_cast<QueueEvent*>(event);
}

double GuardImpl::elapsedTime(void* event1, void* event2,
                              const c10::DeviceIndex /*device_index*/) const {
  TORCH_CHECK(event1 != nullptr && event2 != nullptr,
              "elapsed_time: expected two recorded events; call record() on both");
  const auto* start = static_cast<const QueueEvent*>(event1);
  const auto* end = static_cast<const QueueEvent*>(event2);
  return static_cast<double>(start->elapsed_ns(*end)) * 1e-6;
}

}  // namespace loom
