// SPDX-License-Identifier: BSD-3-Clause
// The allocators of real devices, in whichever memory mode the process runs.
#include "loom/memory/device_allocator.h"

#include "loom/base/check.h"
#include "loom/base/options.h"
#include "loom/device/address.h"
#include "loom/device/device.h"
#include "loom/device/fault.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace loom {
namespace {

TEST(DeviceAllocatorTest, IsTheSameAtEveryCall) {
  EXPECT_EQ(&device_allocator(0), &device_allocator(0));
}

TEST(DeviceAllocatorTest, UnknownDevicesAreRefused) {
  EXPECT_THROW((void)device_allocator(-1), Error);
  EXPECT_THROW((void)device_allocator(device_count()), Error);
  EXPECT_THROW((void)device_allocator(1000), Error);
}

TEST(DeviceAllocatorTest, MemoryIsReachedThroughItsHostAddress) {
  Queue& queue = device(0).default_queue();
  void* block = device_allocator(0).allocate(10'000, queue);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(device_of_address(block), 0);
  queue.submit("write", [block] { std::memset(host_address(block), 7, 10'000); });
  queue.synchronize();
  EXPECT_EQ(static_cast<std::byte*>(host_address(block))[9'999], std::byte{7});
  device_allocator(0).free(block);
}

TEST(DeviceAllocatorTest, DescribesAddressesOfAllDevices) {
  void* block = device_allocator(0).allocate(10'000, device(0).default_queue());
  char text[256] = "";
  EXPECT_TRUE(describe_address(static_cast<std::byte*>(block) + 1, text, sizeof text));
  EXPECT_NE(std::strstr(text, "of 10000 bytes"), nullptr) << text;
  EXPECT_FALSE(describe_address(text, text, sizeof text));
  device_allocator(0).free(block);
}

TEST(DeviceAllocatorDeathTest, StrayAccessInIsolatedModeNamesTheAllocation) {
  if (options().memory != MemoryMode::kIsolated) GTEST_SKIP() << "needs LOOM_MEMORY=isolated";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child knows no allocations
  set_fault_describer(describe_address);
  void* block = device_allocator(0).allocate(10'000, device(0).default_queue());
  device_allocator(0).set_name(block, "weights");
  EXPECT_DEATH((void)*static_cast<volatile char*>(block), "allocation 'weights' of 10000 bytes");
  device_allocator(0).free(block);
}

/// Runs `body` in a forked child and returns what it returned.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DeviceAllocatorTest, ForkedChildGetsAnErrorAndMayDropWhatItInherited) {
  CachingAllocator& allocator = device_allocator(0);
  Queue& queue = device(0).default_queue();
  void* block = allocator.allocate(100, queue);
  EXPECT_EQ(in_child([&] {
              allocator.free(block);
              try {
                (void)allocator.allocate(100, queue);
              } catch (const Error&) {
                return 42;
              }
              return 1;
            }),
            42);
  allocator.free(block);
}

}  // namespace
}  // namespace loom
