// SPDX-License-Identifier: BSD-3-Clause
// Every virtual of c10::impl::DeviceGuardImplInterface, called as c10 does.
#include "loom/backend/device_state.h"
#include "loom/device/event.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "backend/support.h"
#include <utility>

namespace loom {
namespace {

using test::Hold;
using test::thrown_text;
using ::testing::HasSubstr;

class GuardTest : public test::BackendTest {
 protected:
  const c10::impl::DeviceGuardImplInterface& guard() {
    return *c10::impl::getDeviceGuardImpl(kDeviceType);
  }
};

/// An event as c10 holds it, destroyed as c10 does.
class RawEvent {
 public:
  explicit RawEvent(c10::EventFlag flag = c10::EventFlag::PYTORCH_DEFAULT) : flag_(flag) {}
  ~RawEvent() { impl().destroyEvent(event_, 0); }
  RawEvent(const RawEvent&) = delete;
  RawEvent& operator=(const RawEvent&) = delete;

  void record(const c10::Stream& stream, c10::DeviceIndex device = -1) {
    impl().record(&event_, stream, device, flag_);
  }
  [[nodiscard]] void* get() const { return event_; }

 private:
  static const c10::impl::DeviceGuardImplInterface& impl() {
    return *c10::impl::getDeviceGuardImpl(kDeviceType);
  }
  const c10::EventFlag flag_;
  void* event_ = nullptr;
};

TEST_F(GuardTest, IsRegisteredForTheDeviceType) { EXPECT_EQ(guard().type(), kDeviceType); }

TEST_F(GuardTest, DevicesAreSetExchangedAndRead) {
  guard().setDevice(to_c10(1));
  EXPECT_EQ(guard().getDevice(), to_c10(1));
  EXPECT_EQ(guard().exchangeDevice(to_c10(0)), to_c10(1));
  guard().uncheckedSetDevice(to_c10(1));
  EXPECT_EQ(guard().getDevice(), to_c10(1));
  EXPECT_THROW(guard().setDevice(to_c10(9)), c10::Error);
  EXPECT_EQ(guard().deviceCount(), 2);
}

TEST_F(GuardTest, DeviceGuardRestoresTheDevice) {
  {
    const c10::DeviceGuard scope(to_c10(1));
    EXPECT_EQ(current_device(), 1);
  }
  EXPECT_EQ(current_device(), 0);
}

TEST_F(GuardTest, CapabilityListsEveryDtype) {
  EXPECT_TRUE(
      guard().getDeviceCapability(to_c10(0)).capability_data.supported_scalar_types.has_BFloat16);
  EXPECT_THROW((void)guard().getDeviceCapability(to_c10(9)), c10::Error);
}

TEST_F(GuardTest, StreamsAreGivenByKind) {
  EXPECT_EQ(guard().getStream(to_c10(1)), default_stream(1).unwrap());
  EXPECT_EQ(guard().getDefaultStream(to_c10(1)).id(), 0);
  EXPECT_EQ(Stream(guard().getStreamFromGlobalPool(to_c10(0), true)).priority(), -1);
  EXPECT_EQ(Stream(guard().getStreamFromGlobalPool(to_c10(0), false)).priority(), 0);
  EXPECT_EQ(Stream(guard().getNewStream(to_c10(1), -1)).priority(), -1);
  EXPECT_EQ(guard().getNewStream(to_c10(1), 0).device(), to_c10(1));
}

TEST_F(GuardTest, ExchangeStreamKeepsTheCurrentDevice) {
  const c10::Stream stream = guard().getNewStream(to_c10(1));
  EXPECT_EQ(guard().exchangeStream(stream), default_stream(1).unwrap());
  EXPECT_EQ(guard().getStream(to_c10(1)), stream);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(GuardTest, NativeHandleIsTheQueue) {
  const Stream stream = stream_from_pool();
  EXPECT_EQ(guard().getStreamNativeHandle(stream), &stream.queue());
  EXPECT_EQ(stream.unwrap().native_handle(), &stream.queue());
  EXPECT_FALSE(guard().isStreamCapturing(stream));
}

TEST_F(GuardTest, QueriesAndSynchronizesStreams) {
  const Stream stream = stream_from_pool();
  Hold hold(stream.queue());
  EXPECT_FALSE(guard().queryStream(stream));
  hold.open();
  guard().synchronizeStream(stream);
  EXPECT_TRUE(guard().queryStream(stream));
}

TEST_F(GuardTest, SynchronizeDeviceHasCheckedItsIndex) {
  guard().synchronizeDevice(1);
  EXPECT_THROW(guard().synchronizeDevice(9), c10::Error);
}

TEST_F(GuardTest, EventsRecordBlockAndQuery) {
  const Stream producer = stream_from_pool(false, 0);
  const Stream consumer = stream_from_pool(false, 1);
  RawEvent event;
  EXPECT_TRUE(guard().queryEvent(event.get()));
  Hold hold(producer.queue());
  event.record(producer);
  EXPECT_FALSE(guard().queryEvent(event.get()));
  guard().block(event.get(), consumer);
  bool ran = false;
  consumer.queue().submit("mark", [&ran] { ran = true; });
  EXPECT_FALSE(consumer.query());
  hold.open();
  guard().synchronizeEvent(event.get());
  EXPECT_TRUE(guard().queryEvent(event.get()));
  consumer.synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(GuardTest, EventsNeverRecordedAreNoOps) {
  guard().block(nullptr, default_stream());
  guard().synchronizeEvent(nullptr);
  guard().destroyEvent(nullptr, 0);
  EXPECT_TRUE(guard().queryEvent(nullptr));
}

TEST_F(GuardTest, RecordOnAStreamOfAnotherDeviceIsRefused) {
  RawEvent event;
  EXPECT_THAT(thrown_text<c10::Error>([&] { event.record(default_stream(1), 0); }),
              HasSubstr("expected a stream of the event's device loom:0, got one of loom:1"));
  EXPECT_EQ(event.get(), nullptr);
}

TEST_F(GuardTest, FlagsDecideOnTiming) {
  RawEvent start(c10::EventFlag::BACKEND_DEFAULT);
  RawEvent end(c10::EventFlag::BACKEND_DEFAULT);
  start.record(default_stream());
  end.record(default_stream());
  guard().synchronizeEvent(end.get());
  EXPECT_GE(guard().elapsedTime(start.get(), end.get(), 0), 0.0);
  RawEvent untimed;
  untimed.record(default_stream());
  guard().synchronizeEvent(untimed.get());
  EXPECT_THROW((void)guard().elapsedTime(start.get(), untimed.get(), 0), std::exception);
  RawEvent invalid(c10::EventFlag::INVALID);
  EXPECT_THROW(invalid.record(default_stream()), c10::Error);
}

TEST_F(GuardTest, ElapsedTimeNeedsRecordedEvents) {
  EXPECT_THAT(thrown_text<c10::Error>([&] { (void)guard().elapsedTime(nullptr, nullptr, 0); }),
              HasSubstr("elapsed_time: expected two recorded events"));
}

TEST_F(GuardTest, DestroyingAnEventLeavesItsWaitsInPlace) {
  const Stream producer = stream_from_pool();
  const Stream consumer = stream_from_pool();
  Hold hold(producer.queue());
  {
    RawEvent event;
    event.record(producer);
    guard().block(event.get(), consumer);
  }
  consumer.queue().submit("after", [] {});
  EXPECT_FALSE(consumer.query());
  hold.open();
  consumer.synchronize();
}

TEST_F(GuardTest, C10EventsAndStreamGuardsWork) {
  const c10::Stream stream = stream_from_pool(false, 1);
  c10::Event event(kDeviceType);
  {
    const c10::StreamGuard scope(stream);
    EXPECT_EQ(current_stream(), Stream(stream));
    event.record(stream);
  }
  event.block(default_stream(0));
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(stream.query());
}

TEST_F(GuardTest, RecordedDataIsNotReusedBeforeTheStreamHasPassed) {
  const Stream other = stream_from_pool();
  Hold hold(other.queue());
  c10::DataPtr data = allocate(4096, current_queue());
  const void* address = data.get();
  guard().recordDataPtrOnStream(data, other);
  data.clear();
  EXPECT_NE(allocate(4096, current_queue()).get(), address);
}

}  // namespace
}  // namespace loom
