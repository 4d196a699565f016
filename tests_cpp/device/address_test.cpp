// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/address.h"

#include "loom/base/check.h"
#include "loom/device/arena.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include <cstring>
#include <sys/resource.h>

namespace loom {
namespace {

using ::testing::ExitedWithCode;

TEST(AddressTest, NullStaysNull) {
  EXPECT_EQ(host_address(nullptr), nullptr);
  EXPECT_EQ(device_address(nullptr), nullptr);
}

TEST(AddressTest, InUnifiedModeBothAddressesAreTheSame) {
  Arena arena(0, std::size_t{4} << 20);
  void* const segment = arena.map_segment(1);
  EXPECT_EQ(host_address(segment), segment);
  EXPECT_EQ(device_address(segment), segment);
}

using AddressChildTest = testing::ChildTest;

TEST_F(AddressChildTest, NoAddressBelongsToADeviceBeforeTheFirstUse) {
  EXPECT_EXIT(testing::finish([] {
                int local = 0;
                EXPECT_EQ(device_of_address(&local), -1);
              }),
              ExitedWithCode(0), "");
}

TEST_F(AddressChildTest, InIsolatedModeMemoryLiesAboveTheDeviceAddress) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_MEMORY", "isolated", 1);
                Arena arena(3, std::size_t{4} << 20);
                void* const segment = arena.map_segment(1);
                EXPECT_NE(host_address(segment), segment);
                EXPECT_EQ(device_address(host_address(segment)), segment);
                EXPECT_EQ(device_of_address(segment), 3);
                EXPECT_EQ(device_of_address(host_address(segment)), -1);
                std::memset(host_address(segment), 1, std::size_t{2} << 20);
                arena.unmap_segment(segment, 1);
                EXPECT_EQ(arena.map_segment(1), segment);
                EXPECT_EQ(*static_cast<char*>(host_address(segment)), 0);
              }),
              ExitedWithCode(0), "");
}

TEST_F(AddressChildTest, TooLittleAddressSpaceIsAnErrorThatSaysWhatToDo) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers need more address space than this leaves";
#elif defined(LOOM_TEST_EMULATOR)
  GTEST_SKIP() << "qemu-user ignores limits of the address space";
#endif
  EXPECT_EXIT(testing::finish([] {
                rlimit limit{std::size_t{8} << 30, std::size_t{8} << 30};
                setrlimit(RLIMIT_AS, &limit);
                EXPECT_THROW(Arena(0, std::size_t{4} << 20), Error);
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
