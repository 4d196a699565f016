// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"

#include "loom/device/device.h"

#include "backend/support.h"

namespace loom {
namespace {

using test::thrown_text;
using ::testing::HasSubstr;

using DeviceStateTest = test::BackendTest;

TEST_F(DeviceStateTest, CountsTheDevicesOfTheOptions) {
  EXPECT_EQ(device_count(), 2);
  EXPECT_EQ(device_count_or_zero(), 2);
}

TEST_F(DeviceStateTest, SetDeviceChangesTheCallingThreadOnly) {
  set_device(1);
  EXPECT_EQ(current_device(), 1);
  test::on_other_thread([] { EXPECT_EQ(current_device(), 0); });
}

TEST_F(DeviceStateTest, SetDeviceNamesTheRangeItExpects) {
  EXPECT_THAT(thrown_text<c10::Error>([] { set_device(5); }),
              HasSubstr("set_device: expected a device index in [0, 2), got 5"));
  EXPECT_THAT(thrown_text<c10::Error>([] { set_device(-1); }), HasSubstr("got -1"));
  EXPECT_EQ(current_device(), 0);
}

TEST_F(DeviceStateTest, ExchangeReturnsThePreviousDevice) {
  EXPECT_EQ(exchange_device(1), 0);
  EXPECT_EQ(exchange_device(0), 1);
  EXPECT_THAT(thrown_text<c10::Error>([] { exchange_device(2); }), HasSubstr("exchange_device"));
}

TEST_F(DeviceStateTest, MaybeExchangeIgnoresNegativeIndices) {
  set_device(1);
  EXPECT_EQ(maybe_exchange_device(-1), -1);
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(maybe_exchange_device(0), 1);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(DeviceStateTest, UncheckedSetIgnoresWhatCannotBeADevice) {
  set_device(1);
  set_device_unchecked(-1);
  EXPECT_EQ(current_device(), 1);
  set_device_unchecked(0);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(DeviceStateTest, ResolveTakesMinusOneForTheCurrentDevice) {
  set_device(1);
  EXPECT_EQ(resolve_device(-1, "test"), 1);
  EXPECT_EQ(resolve_device(c10::Device(kDeviceType), "test"), 1);
  EXPECT_EQ(resolve_device(0, "test"), 0);
}

TEST_F(DeviceStateTest, DevicesOfOtherTypesAreRefused) {
  EXPECT_THAT(thrown_text<c10::Error>([] { (void)resolve_device(c10::Device("cpu"), "test"); }),
              HasSubstr("test: expected a loom device, got cpu"));
  EXPECT_THAT(thrown_text<c10::Error>([] { check_device(c10::Device("meta"), "test"); }),
              HasSubstr("got meta"));
}

TEST_F(DeviceStateTest, SynchronizeWaitsForAllStreamsOfTheDevice) {
  Queue& queue = stream_from_pool(false, 1).queue();
  test::Hold hold(queue);
  bool ran = false;
  queue.submit("mark", [&ran] { ran = true; });
  EXPECT_FALSE(queue.idle());
  hold.open();
  synchronize(1);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace loom
