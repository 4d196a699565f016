// SPDX-License-Identifier: BSD-3-Clause
// Every virtual of at::PrivateUse1HooksInterface, called as ATen does, and torch.accelerator's
// functions on top of them.
#include "loom/backend/device_state.h"
#include "loom/backend/generator.h"
#include "loom/backend/host_allocator.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>

#include "backend/support.h"

namespace loom {
namespace {

using test::Hold;
using test::thrown_text;
using ::testing::HasSubstr;

class HooksTest : public test::BackendTest {
 protected:
  static const at::PrivateUse1HooksInterface& hooks() { return at::detail::getPrivateUse1Hooks(); }

  static c10::Storage storage_of(std::size_t bytes, c10::DeviceIndex device = 0) {
    return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(bytes),
                        allocate(bytes, current_queue(device)), &allocator(), /*resizable=*/true);
  }
};

TEST_F(HooksTest, LoomIsBuiltAndAvailable) {
  EXPECT_TRUE(hooks().isBuilt());
  EXPECT_TRUE(hooks().isAvailable());
  EXPECT_EQ(hooks().deviceCount(), 2);
  hooks().init();
}

TEST_F(HooksTest, LoomIsTheAccelerator) {
  EXPECT_EQ(at::accelerator::getAccelerator(), kDeviceType);
  EXPECT_EQ(at::accelerator::deviceCount(), 2);
  at::accelerator::setDeviceIndex(1);
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 1);
  EXPECT_EQ(at::accelerator::getCurrentStream(1), default_stream(1).unwrap());
  at::accelerator::synchronizeDevice(1);
  EXPECT_EQ(at::accelerator::exchangeDevice(0), 1);
  EXPECT_GT(at::accelerator::getMemoryInfo(0).second, 0U);
}

TEST_F(HooksTest, DevicesAreSetExchangedAndRead) {
  hooks().setCurrentDevice(1);
  EXPECT_EQ(hooks().getCurrentDevice(), 1);
  EXPECT_EQ(hooks().exchangeDevice(0), 1);
  EXPECT_EQ(hooks().maybeExchangeDevice(1), 0);
  EXPECT_EQ(hooks().maybeExchangeDevice(-1), -1);
  EXPECT_THROW(hooks().setCurrentDevice(9), c10::Error);
}

TEST_F(HooksTest, PrimaryContextExistsAfterUse) {
  current_queue(1).synchronize();
  EXPECT_TRUE(hooks().hasPrimaryContext(1));
  EXPECT_FALSE(hooks().hasPrimaryContext(9));
  EXPECT_FALSE(hooks().hasPrimaryContext(-1));
}

TEST_F(HooksTest, PointersInsideABlockHaveADevice) {
  const c10::DataPtr data = allocate(4096, current_queue(1));
  auto* bytes = static_cast<std::byte*>(data.get());
  EXPECT_EQ(hooks().getDeviceFromPtr(bytes), to_c10(1));
  EXPECT_EQ(hooks().getDeviceFromPtr(bytes + 4095), to_c10(1));
}

TEST_F(HooksTest, HostPointersHaveNoDevice) {
  int value = 0;
  EXPECT_THAT(thrown_text<c10::Error>([&] { (void)hooks().getDeviceFromPtr(&value); }),
              HasSubstr("getDeviceFromPtr: expected an address of loom device memory"));
}

TEST_F(HooksTest, PinnedMemoryIsOurs) {
  EXPECT_EQ(hooks().getPinnedMemoryAllocator(), &host_allocator());
  const c10::DataPtr pinned = host_allocator().allocate(64);
  EXPECT_TRUE(hooks().isPinnedPtr(pinned.get()));
  EXPECT_FALSE(hooks().isPinnedPtr(&pinned));
}

TEST_F(HooksTest, GeneratorsBelongToTheirDevice) {
  EXPECT_EQ(hooks().getDefaultGenerator(1), default_generator(1));
  set_device(1);
  EXPECT_EQ(hooks().getNewGenerator().device(), to_c10(1));
  EXPECT_EQ(hooks().getNewGenerator(0).device(), to_c10(0));
  EXPECT_THROW((void)hooks().getNewGenerator(9), c10::Error);
}

TEST_F(HooksTest, GrowingAStorageKeepsItsContent) {
  const c10::Storage storage = storage_of(1000, 1);
  test::fill(current_queue(1), storage.mutable_data(), 0x3C, 1000);
  hooks().resizePrivateUse1Bytes(storage, 100000);
  EXPECT_EQ(storage.nbytes(), 100000U);
  EXPECT_EQ(storage.device(), to_c10(1));
  EXPECT_EQ(current_device(), 0);
  EXPECT_TRUE(test::holds(current_queue(1), storage.data(), 0x3C, 1000));
}

TEST_F(HooksTest, ShrinkingAndEmptyingAStorage) {
  const c10::Storage storage = storage_of(4096);
  test::fill(current_queue(), storage.mutable_data(), 0x11, 4096);
  hooks().resizePrivateUse1Bytes(storage, 100);
  EXPECT_TRUE(test::holds(current_queue(), storage.data(), 0x11, 100));
  hooks().resizePrivateUse1Bytes(storage, 0);
  EXPECT_EQ(storage.nbytes(), 0U);
  EXPECT_EQ(storage.data(), nullptr);
  hooks().resizePrivateUse1Bytes(storage, 64);
  EXPECT_NE(storage.data(), nullptr);
}

TEST_F(HooksTest, ResizingDoesNotWaitForTheStream) {
  const c10::Storage storage = storage_of(4096);
  Hold hold(current_queue());
  test::fill(current_queue(), storage.mutable_data(), 0x22, 4096);
  hooks().resizePrivateUse1Bytes(storage, 8192);
  EXPECT_FALSE(current_queue().idle());
  hold.open();
  EXPECT_TRUE(test::holds(current_queue(), storage.data(), 0x22, 4096));
}

TEST_F(HooksTest, ResizingOnASideStreamKeepsTheOldBlockUntilTheCopyHasRun) {
  const c10::Storage storage = storage_of(4096);
  const void* old = storage.data();
  test::fill(current_queue(), storage.mutable_data(), 0x33, 4096);
  current_queue().synchronize();
  const StreamGuard guard(stream_from_pool());
  Hold hold(current_queue());
  hooks().resizePrivateUse1Bytes(storage, 8192);
  const c10::DataPtr next = allocate(4096, default_stream().queue());
  EXPECT_NE(next.get(), old);
  hold.open();
  EXPECT_TRUE(test::holds(current_queue(), storage.data(), 0x33, 4096));
}

TEST_F(HooksTest, FixedStoragesAreNotResized) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(), 64, allocate(64, current_queue()),
                             nullptr, /*resizable=*/false);
  EXPECT_THAT(thrown_text<c10::Error>([&] { hooks().resizePrivateUse1Bytes(storage, 128); }),
              HasSubstr("resize_: expected a resizable storage"));
}

}  // namespace
}  // namespace loom
