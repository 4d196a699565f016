// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/device.h"

#include "loom/base/check.h"
#include "loom/device/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/gate.h"
#include "support/queues.h"
#include <set>
#include <stdexcept>

namespace loom {
namespace {

using ::testing::ExitedWithCode;
using testing::Gate;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(DeviceTest, IsTheSameAtEveryCall) {
  EXPECT_GE(device_count(), 1);
  EXPECT_EQ(&device(0), &device(0));
  EXPECT_EQ(device(0).index(), 0);
}

TEST(DeviceTest, AnIndexThatDoesNotExistIsAnError) {
  const std::string range =
      "expected a device index in [0, " + std::to_string(device_count()) + ")";
  for (const int index : {-1, device_count(), 1000}) {
    EXPECT_THAT([&] { (void)device(index); },
                ThrowsMessage<Error>(
                    ::testing::AllOf(HasSubstr(range), HasSubstr("got " + std::to_string(index)))));
  }
}

TEST(DeviceTest, PoolQueuesAreDistinctAndKeepTheirIdentity) {
  Device& owner = device(0);
  std::set<Queue*> queues{&owner.default_queue()};
  for (const int priority : {0, -1}) {
    for (int index = 0; index < Device::kQueuesPerPriority; ++index) {
      Queue& queue = owner.pool_queue(priority, index);
      EXPECT_EQ(&owner.pool_queue(priority, index), &queue);
      EXPECT_EQ(queue.id(), (QueueId{0, priority, index + 1}));
      queues.insert(&queue);
    }
  }
  EXPECT_EQ(queues.size(), 1U + 2 * Device::kQueuesPerPriority);
}

TEST(DeviceTest, PoolQueuesOutsideThePoolAreErrors) {
  Device& owner = device(0);
  EXPECT_THAT([&] { (void)owner.pool_queue(1, 0); },
              ThrowsMessage<Error>(HasSubstr("expected a priority from -1 to 0, got 1")));
  EXPECT_THROW((void)owner.pool_queue(-2, 0), Error);
  EXPECT_THROW((void)owner.pool_queue(0, -1), Error);
  EXPECT_THAT([&] { (void)owner.pool_queue(0, 32); },
              ThrowsMessage<Error>(HasSubstr("expected an index in [0, 32), got 32")));
}

TEST(DeviceTest, NextPoolQueueGoesRoundThePool) {
  Device& owner = device(0);
  std::set<Queue*> queues;
  for (int i = 0; i < Device::kQueuesPerPriority; ++i) queues.insert(&owner.next_pool_queue(0));
  EXPECT_EQ(queues.size(), static_cast<std::size_t>(Device::kQueuesPerPriority));
  EXPECT_TRUE(queues.contains(&owner.next_pool_queue(0)));
}

TEST(DeviceTest, NextPoolQueueClampsThePriority) {
  EXPECT_EQ(device(0).next_pool_queue(-100).id().priority, Queue::kHighestPriority);
  EXPECT_EQ(device(0).next_pool_queue(3).id().priority, 0);
}

TEST(DeviceTest, SynchronizeWaitsForAllQueues) {
  Device& owner = device(0);
  Gate gate;
  for (int i = 0; i < 3; ++i) submit_gate(owner.next_pool_queue(-i % 2), gate);
  submit_gate(owner.default_queue(), gate);
  EXPECT_FALSE(owner.idle());
  gate.open();
  owner.synchronize();
  EXPECT_TRUE(owner.idle());
}

TEST(DeviceTest, SynchronizeThrowsAnErrorAfterAllQueuesAreDone) {
  Device& owner = device(0);
  Gate gate;
  owner.default_queue().submit("bad", [] { throw std::runtime_error("bad"); });
  submit_gate(owner.pool_queue(0, 3), gate);
  owner.default_queue().submit("open", [&] { gate.open(); });
  EXPECT_THROW(owner.synchronize(), Error);
  EXPECT_TRUE(owner.idle());
  EXPECT_NO_THROW(owner.synchronize());
}

TEST(DeviceTest, ALentQueueIsLentAgainWithoutItsError) {
  Device& owner = device(0);
  Queue& queue = owner.lend_queue();
  queue.submit("bad", [] { throw std::runtime_error("bad"); });
  queue.submit("last", [&] { owner.take_back(queue); });
  queue.timeline().wait(queue.submitted());
  EXPECT_EQ(&owner.lend_queue(), &queue);
  queue.submit("good", [] {});
  EXPECT_NO_THROW(queue.synchronize());
  EXPECT_THROW(owner.synchronize(), Error);  // of whom nobody has been told
  EXPECT_NO_THROW(owner.synchronize());
  owner.take_back(queue);
}

TEST(DeviceTest, ArenaAndQueuesBelongToIt) {
  Device& owner = device(0);
  EXPECT_EQ(owner.arena().limit() / Arena::kGranularity,
            owner.properties().total_memory / Arena::kGranularity);
  EXPECT_EQ(owner.cores().count(), owner.properties().core_count);
  EXPECT_EQ(&owner.default_queue().cores(), &owner.cores());
}

using DeviceChildTest = testing::ChildTest;

TEST_F(DeviceChildTest, MakingADeviceStartsNoThread) {
  EXPECT_EXIT(testing::finish([] {
                const int before = testing::count_threads();
                Device& owner = device(0);
                (void)owner.next_pool_queue(0);
                owner.synchronize();
                EXPECT_EQ(testing::count_threads(), before);
              }),
              ExitedWithCode(0), "");
}

TEST_F(DeviceChildTest, ThereMayBeMoreDevicesThanCores) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_DEVICES", "16", 1);
                setenv("LOOM_MEMORY_LIMIT", "64M", 1);
                ASSERT_EQ(device_count(), 16);
                for (int index = 0; index < 16; ++index) {
                  Device& owner = device(index);
                  EXPECT_GE(owner.cores().count(), 1);
                  EXPECT_EQ(owner.default_queue().id(), (QueueId{index, 0, 0}));
                  void* const segment = owner.arena().map_segment(2 << 20);
                  EXPECT_EQ(device_of_address(segment), index);
                  owner.default_queue().submit("nothing", [] {});
                }
                for (int index = 0; index < 16; ++index) device(index).synchronize();
              }),
              ExitedWithCode(0), "");
}

TEST_F(DeviceChildTest, ABadVariableIsAnErrorAtEveryUse) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_MEMORY_LIMIT", "lots", 1);
                for (int i = 0; i < 2; ++i) {
                  EXPECT_THAT([] { (void)device_count(); },
                              ThrowsMessage<Error>(HasSubstr("LOOM_MEMORY_LIMIT")));
                  EXPECT_THAT([] { (void)device(0); },
                              ThrowsMessage<Error>(HasSubstr("LOOM_MEMORY_LIMIT")));
                }
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
