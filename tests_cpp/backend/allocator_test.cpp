// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/allocator.h"

#include "loom/backend/device_state.h"
#include "loom/backend/memory_stats.h"
#include "loom/device/address.h"
#include "loom/device/device.h"
#include "loom/memory/redzone.h"
#include "loom/memory/size_classes.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "backend/support.h"
#include <string>
#include <vector>

namespace loom {
namespace {

using test::Hold;
using test::thrown_text;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The size of the block for a request: with AddressSanitizer more than that.
constexpr std::size_t block_for(std::size_t bytes) {
  return detail::block_bytes(bytes + detail::kRedzoneBytes);
}

class AllocatorTest : public test::BackendTest {
 protected:
  void SetUp() override {
    empty_cache();
    reset_peak_memory_stats(0);
  }
  static c10::DeviceAllocator& registered() { return *c10::getDeviceAllocator(kDeviceType); }
};

TEST_F(AllocatorTest, IsTheDeviceAllocatorOfTheDeviceType) {
  EXPECT_EQ(&registered(), &allocator());
  const c10::DataPtr data = registered().allocate(16);
  EXPECT_TRUE(registered().initialized());
  EXPECT_EQ(data.device(), to_c10(0));
}

TEST_F(AllocatorTest, AllocatesOnTheCurrentDevice) {
  set_device(1);
  const c10::DataPtr data = allocator().allocate(100);
  EXPECT_EQ(data.device(), to_c10(1));
  EXPECT_EQ(device_of_address(data.get()), 1);
  EXPECT_EQ(data.get(), data.get_context());
  EXPECT_EQ(data.get_deleter(), allocator().raw_deleter());
}

TEST_F(AllocatorTest, ZeroBytesGiveANullPointerWithTheDevice) {
  set_device(1);
  const c10::DataPtr data = allocator().allocate(0);
  EXPECT_EQ(data.get(), nullptr);
  EXPECT_EQ(data.device(), to_c10(1));
}

TEST_F(AllocatorTest, RawAllocationsGoBack) {
  const std::size_t before = memory_allocated(0);
  void* raw = allocator().raw_allocate(1000);
  EXPECT_GE(memory_allocated(0), before + 1000);
  allocator().raw_deallocate(raw);
  EXPECT_EQ(memory_allocated(0), before);
}

TEST_F(AllocatorTest, MemoryIsReusableAtOnceByItsOwnStream) {
  Hold hold(current_queue());
  c10::DataPtr data = allocate(4096, current_queue());
  const void* address = data.get();
  data.clear();
  EXPECT_EQ(allocate(4096, current_queue()).get(), address);
}

TEST_F(AllocatorTest, RecordStreamDelaysReuseUntilTheStreamHasPassed) {
  const Stream other = stream_from_pool();
  Hold hold(other.queue());
  c10::DataPtr data = allocate(4096, current_queue());
  const void* address = data.get();
  registered().recordStream(data, other);
  data.clear();
  const c10::DataPtr next = allocate(4096, current_queue());
  EXPECT_NE(next.get(), address);
  hold.open();
  other.synchronize();
  EXPECT_EQ(allocate(4096, current_queue()).get(), address);
}

TEST_F(AllocatorTest, RecordStreamIgnoresForeignMemory) {
  int value = 0;
  registered().recordStream(c10::DataPtr(&value, c10::Device("cpu")), default_stream());
  registered().recordStream(c10::DataPtr(nullptr, to_c10(0)), default_stream());
}

TEST_F(AllocatorTest, RecordStreamFindsTheBlockOfAWrappedPointer) {
  const Stream other = stream_from_pool();
  Hold hold(other.queue());
  c10::DataPtr data = allocate(4096, current_queue());
  const void* address = data.get();
  const c10::DataPtr part(static_cast<std::byte*>(data.get()) + 64, data.device());
  registered().recordStream(part, other);
  data.clear();
  EXPECT_NE(allocate(4096, current_queue()).get(), address);
}

TEST_F(AllocatorTest, CloneCopiesOnTheCurrentStream) {
  const std::size_t bytes = 3 * kMiB + 17;
  const c10::DataPtr source = allocate(bytes, current_queue());
  test::fill(current_queue(), source.get(), 0x5A, bytes);
  const c10::DataPtr copy = allocator().clone(source.get(), bytes);
  EXPECT_TRUE(test::holds(current_queue(), copy.get(), 0x5A, bytes));
}

TEST_F(AllocatorTest, OutOfMemoryTellsTheNumbers) {
  const std::string text =
      thrown_text<c10::OutOfMemoryError>([] { (void)allocate(20480 * kMiB, current_queue()); });
  EXPECT_THAT(text, AllOf(HasSubstr("loom out of memory. Tried to allocate 20.00 GiB. loom:0 has a "
                                    "total capacity of 256.00 MiB of which "),
                          HasSubstr("is free."), HasSubstr("is allocated by PyTorch, and "),
                          HasSubstr("is reserved by PyTorch but unallocated"),
                          HasSubstr("LOOM_MEMORY_LIMIT")));
}

TEST_F(AllocatorTest, TheDeviceWorksOnAfterOutOfMemory) {
  std::vector<c10::DataPtr> blocks;
  EXPECT_THROW(
      {
        for (;;) blocks.push_back(allocate(32 * kMiB, current_queue()));
      },
      c10::OutOfMemoryError);
  EXPECT_GE(blocks.size(), 6U);
  blocks.pop_back();
  EXPECT_NE(allocate(32 * kMiB, current_queue()).get(), nullptr);
  EXPECT_GE(registered().getDeviceStats(0).num_ooms, 1);
}

TEST_F(AllocatorTest, StatsCountAllocations) {
  const auto before = registered().getDeviceStats(0);
  const c10::DataPtr data = allocate(2 * kMiB, current_queue());
  const auto after = registered().getDeviceStats(0);
  EXPECT_EQ(after.allocation[0].current, before.allocation[0].current + 1);
  EXPECT_EQ(after.allocated_bytes[0].current,
            before.allocated_bytes[0].current + static_cast<std::int64_t>(block_for(2 * kMiB)));
  EXPECT_EQ(after.requested_bytes[0].allocated,
            before.requested_bytes[0].allocated + static_cast<std::int64_t>(2 * kMiB));
  EXPECT_GE(after.reserved_bytes[0].current, after.allocated_bytes[0].current);
  EXPECT_GE(after.segment[0].current, 1);
}

TEST_F(AllocatorTest, PeaksAndTotalsAreReset) {
  allocate(8 * kMiB, current_queue()).clear();
  EXPECT_GE(max_memory_allocated(0), 8 * kMiB);
  registered().resetPeakStats(0);
  EXPECT_LT(max_memory_allocated(0), 8 * kMiB);
  registered().resetAccumulatedStats(0);
  EXPECT_EQ(registered().getDeviceStats(0).allocation[0].allocated, 0);
}

TEST_F(AllocatorTest, EmptyCacheGivesMemoryBack) {
  allocate(16 * kMiB, current_queue()).clear();
  EXPECT_GE(memory_reserved(0), 16 * kMiB);
  EXPECT_GE(max_memory_reserved(0), 16 * kMiB);
  registered().emptyCache();
  EXPECT_LT(memory_reserved(0), 16 * kMiB);
}

TEST_F(AllocatorTest, MemoryInfoIsFreeAndTotal) {
  const auto [free, total] = registered().getMemoryInfo(0);
  EXPECT_EQ(total, 256 * kMiB);
  const c10::DataPtr data = allocate(64 * kMiB, current_queue());
  EXPECT_LE(mem_get_info(0).first, free - 64 * kMiB);
}

TEST_F(AllocatorTest, BadDeviceIndicesAreErrors) {
  EXPECT_THROW((void)registered().getDeviceStats(9), c10::Error);
  EXPECT_THROW((void)registered().getMemoryInfo(9), c10::Error);
  EXPECT_THROW(registered().resetPeakStats(-2), c10::Error);
  EXPECT_THROW((void)memory_allocated(9), c10::Error);
}

TEST_F(AllocatorTest, SettingsRoundRequests) {
  c10::CachingAllocator::setAllocatorSettings("roundup_power2_divisions:4");
  const std::size_t before = memory_allocated(0);
  const c10::DataPtr data = allocate(4 * kMiB + 1, current_queue());
  EXPECT_EQ(memory_allocated(0) - before, block_for(5 * kMiB));
  c10::CachingAllocator::setAllocatorSettings("");
}

TEST_F(AllocatorTest, UnknownSettingsAreErrors) {
  EXPECT_THROW(c10::CachingAllocator::setAllocatorSettings("no_such_key:1"), c10::Error);
  c10::CachingAllocator::setAllocatorSettings("");
}

/// Collects what a memory profiler is told.
struct Profiler final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* ptr, std::int64_t bytes, std::size_t total_allocated,
                         std::size_t /*total_reserved*/, c10::Device device) override {
    if (device.type() != kDeviceType) return;
    pointers.push_back(ptr);
    sizes.push_back(bytes);
    totals.push_back(total_allocated);
  }
  void reportOutOfMemory(std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    failed = bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::vector<void*> pointers;
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> totals;
  std::int64_t failed = 0;
};

TEST_F(AllocatorTest, ProfilersHearOfEveryChange) {
  const auto profiler = std::make_shared<Profiler>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, profiler);
  const std::size_t before = memory_allocated(0);
  constexpr auto kBytes = static_cast<std::int64_t>(block_for(4096));
  c10::DataPtr data = allocate(4096, current_queue());
  void* address = data.get();
  data.clear();
  EXPECT_THROW((void)allocate(1024 * kMiB, current_queue()), c10::OutOfMemoryError);
  EXPECT_THAT(profiler->pointers, ::testing::ElementsAre(address, address));
  EXPECT_THAT(profiler->sizes, ::testing::ElementsAre(kBytes, -kBytes));
  EXPECT_EQ(profiler->totals.front(), before + block_for(4096));
  EXPECT_EQ(profiler->failed, static_cast<std::int64_t>(1024 * kMiB));
}

}  // namespace
}  // namespace loom
