// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/properties.h"

#include "loom/base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/affinity.h"
#include "support/child.h"
#include <algorithm>
#include <sched.h>
#include <set>

namespace loom {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PropertiesTest, DescribeThisHost) {
  const auto devices = enumerate_devices(0, 0, 0);
  ASSERT_FALSE(devices.empty());
  for (const DeviceProperties& device : devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.core_count, 1);
    EXPECT_LE(device.core_count, static_cast<int>(device.cpus.size()));
    EXPECT_GE(device.total_memory, std::size_t{64} << 20);
    EXPECT_LE(device.l1_cache, device.l2_cache);
  }
}

TEST(PropertiesTest, TheHostIsSplitIntoTheNumberAskedFor) {
  for (const int count : {1, 2, 3, kMaxDevices}) {
    EXPECT_EQ(enumerate_devices(count, 0, 0).size(), static_cast<std::size_t>(count));
  }
}

TEST(PropertiesTest, DevicesShareProcessorsOnlyWhenThereAreTooFew) {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  const int processors = std::min(CPU_COUNT(&set), kMaxDevices);
  std::set<int> used;
  for (const DeviceProperties& device : enumerate_devices(processors, 0, 0)) {
    for (const int cpu : device.cpus) EXPECT_TRUE(used.insert(cpu).second);
  }
  for (const DeviceProperties& device : enumerate_devices(kMaxDevices, 0, 0)) {
    EXPECT_FALSE(device.cpus.empty());
    EXPECT_GE(device.core_count, 1);
  }
}

TEST(PropertiesTest, ThreadsAndMemoryAreAsAskedFor) {
  for (const DeviceProperties& device : enumerate_devices(2, 5, std::size_t{3} << 30)) {
    EXPECT_EQ(device.core_count, 5);
    EXPECT_EQ(device.total_memory, std::size_t{3} << 30);
  }
}

TEST(PropertiesTest, TheDevicesTogetherLeaveMemoryToTheHost) {
  const std::size_t whole = enumerate_devices(1, 0, 0)[0].total_memory;
  std::size_t sum = 0;
  for (const DeviceProperties& device : enumerate_devices(4, 0, 0)) sum += device.total_memory;
  EXPECT_LE(sum, whole);
  EXPECT_GT(sum, whole / 2);
}

TEST(PropertiesTest, TooManyDevicesAreAnError) {
  EXPECT_THAT([] { (void)enumerate_devices(kMaxDevices + 1, 0, 0); },
              ThrowsMessage<Error>(HasSubstr("got 17")));
  EXPECT_THROW((void)enumerate_devices(-1, 0, 0), Error);
}

using PropertiesChildTest = testing::ChildTest;

TEST_F(PropertiesChildTest, TheAffinityMaskIsRespected) {
  EXPECT_EXIT(testing::finish([] {
                const int last = enumerate_devices(1, 0, 0)[0].cpus.back();
                testing::bind_to(last);
                const auto devices = enumerate_devices(0, 0, 0);
                ASSERT_EQ(devices.size(), 1U);
                EXPECT_EQ(devices[0].cpus, std::vector<int>{last});
                EXPECT_EQ(devices[0].core_count, 1);
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
