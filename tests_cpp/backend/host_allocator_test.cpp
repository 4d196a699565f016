// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/host_allocator.h"

#include "loom/memory/pinned_pool.h"

#include <ATen/Context.h>

#include "backend/support.h"
#include <cstddef>

namespace loom {
namespace {

using test::Hold;

class HostAllocatorTest : public test::BackendTest {
 protected:
  void SetUp() override {
    at::globalContext().lazyInitDevice(at::kPrivateUse1);  // before it, no pointer counts as pinned
    host_allocator().empty_cache();
  }
  static constexpr std::size_t kBytes = std::size_t{1} << 16;
};

TEST_F(HostAllocatorTest, IsTheHostAllocatorOfTheDeviceType) {
  EXPECT_EQ(at::getHostAllocator(at::kPrivateUse1), &host_allocator());
  EXPECT_EQ(at::globalContext().getPinnedMemoryAllocator(), &host_allocator());
}

TEST_F(HostAllocatorTest, MemoryIsPinnedAndOnTheHost) {
  const at::DataPtr data = host_allocator().allocate(kBytes);
  EXPECT_EQ(data.device(), c10::Device("cpu"));
  EXPECT_TRUE(at::globalContext().isPinnedPtr(data.get()));
  EXPECT_TRUE(is_pinned(static_cast<const std::byte*>(data.get()) + kBytes - 1));
  std::memset(data.get(), 1, kBytes);
  int on_stack = 0;
  EXPECT_FALSE(at::globalContext().isPinnedPtr(&on_stack));
}

TEST_F(HostAllocatorTest, ZeroBytesGiveNull) {
  EXPECT_EQ(host_allocator().allocate(0).get(), nullptr);
}

TEST_F(HostAllocatorTest, DroppedBlocksAreReused) {
  at::DataPtr data = host_allocator().allocate(kBytes);
  const void* address = data.get();
  data.clear();
  EXPECT_EQ(host_allocator().allocate(kBytes).get(), address);
}

TEST_F(HostAllocatorTest, BlocksInUseByAStreamAreReusedAfterItHasPassed) {
  const Stream stream = stream_from_pool();
  Hold hold(stream.queue());
  at::DataPtr data = host_allocator().allocate(kBytes);
  const void* address = data.get();
  EXPECT_TRUE(record_pinned_use(data.get(), data.get_context(), stream.unwrap()));
  data.clear();
  {
    const at::DataPtr next = host_allocator().allocate(kBytes);
    EXPECT_NE(next.get(), address);
    hold.open();
    stream.synchronize();
    EXPECT_EQ(host_allocator().allocate(kBytes).get(), address);
  }
}

TEST_F(HostAllocatorTest, UseIsRecordedByPointerToo) {
  const Stream stream = stream_from_pool();
  Hold hold(stream.queue());
  at::DataPtr data = host_allocator().allocate(kBytes);
  const void* address = data.get();
  EXPECT_TRUE(record_pinned_use(data.get(), nullptr, stream.queue()));
  data.clear();
  EXPECT_NE(host_allocator().allocate(kBytes).get(), address);
}

TEST_F(HostAllocatorTest, ForeignMemoryIsNotRecorded) {
  int value = 0;
  EXPECT_FALSE(record_pinned_use(&value, nullptr, default_stream().queue()));
}

TEST_F(HostAllocatorTest, EmptyCacheUnmaps) {
  at::DataPtr data = host_allocator().allocate(kBytes);
  const void* address = data.get();
  data.clear();
  EXPECT_TRUE(is_pinned(address));
  host_allocator().empty_cache();
  EXPECT_FALSE(is_pinned(address));
}

TEST_F(HostAllocatorTest, StatsCountRequests) {
  const at::DataPtr data = host_allocator().allocate(kBytes);
  const at::HostStats stats = host_allocator().get_stats();
  EXPECT_GE(stats.active_requests.current, 1);
  EXPECT_GE(stats.active_bytes.current, static_cast<std::int64_t>(kBytes));
  host_allocator().reset_peak_stats();
  host_allocator().reset_accumulated_stats();
  EXPECT_EQ(host_allocator().get_stats().active_requests.allocated, 0);
}

TEST_F(HostAllocatorTest, CopiesHostData) {
  const at::DataPtr source = host_allocator().allocate(kBytes);
  std::memset(source.get(), 7, kBytes);
  const at::DataPtr copy = host_allocator().clone(source.get(), kBytes);
  EXPECT_EQ(std::memcmp(copy.get(), source.get(), kBytes), 0);
}

}  // namespace
}  // namespace loom
