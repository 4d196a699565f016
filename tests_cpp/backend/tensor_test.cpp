// SPDX-License-Identifier: BSD-3-Clause
// The skin as tensors meet it.
#include "loom/backend/device_state.h"
#include "loom/backend/host_allocator.h"
#include "loom/backend/serialization.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "backend/support.h"

namespace loom {
namespace {

using test::Hold;

class TensorTest : public test::BackendTest {
 protected:
  static at::Tensor make(at::IntArrayRef sizes, c10::DeviceIndex device = 0) {
    return at::empty(sizes, at::TensorOptions().device(to_c10(device)).dtype(at::kFloat));
  }
};

TEST_F(TensorTest, MemoryComesFromTheAllocatorOfTheDevice) {
  const std::size_t before =
      static_cast<std::size_t>(allocator().getDeviceStats(1).requested_bytes[0].current);
  const at::Tensor tensor = make({256, 256}, 1);
  EXPECT_EQ(tensor.device(), to_c10(1));
  EXPECT_EQ(tensor.storage().data_ptr().get_deleter(), allocator().raw_deleter());
  EXPECT_EQ(static_cast<std::size_t>(allocator().getDeviceStats(1).requested_bytes[0].current),
            before + 256 * 256 * sizeof(float));
}

TEST_F(TensorTest, MemoryBelongsToTheCurrentStream) {
  const StreamGuard guard(stream_from_pool());
  Hold hold(current_queue());
  const void* address = make({1024}).data_ptr();
  EXPECT_EQ(make({1024}).data_ptr(), address);
  const StreamGuard back(default_stream());
  EXPECT_NE(make({1024}).data_ptr(), address);
}

TEST_F(TensorTest, PinnedTensorsArePinned) {
  const at::Tensor pinned = at::empty({16}, at::TensorOptions().pinned_memory(true));
  EXPECT_TRUE(pinned.device().is_cpu());
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(at::empty({16}).is_pinned());
  EXPECT_TRUE(at::empty({16}).pin_memory().is_pinned());
}

TEST_F(TensorTest, PinnedMemoryIsNotReusedWhileACopyIsQueued) {
  host_allocator().empty_cache();
  const at::Tensor target = make({1024});
  Hold hold(current_queue());
  const void* address = nullptr;
  {
    const at::Tensor pinned = at::empty({1024}, at::TensorOptions().pinned_memory(true));
    address = pinned.data_ptr();
    target.copy_(pinned, /*non_blocking=*/true);
  }
  EXPECT_FALSE(current_queue().idle());
  EXPECT_NE(at::empty({1024}, at::TensorOptions().pinned_memory(true)).data_ptr(), address);
}

TEST_F(TensorTest, RecordStreamDelaysReuse) {
  const Stream other = stream_from_pool();
  Hold hold(other.queue());
  at::Tensor tensor = make({4096});
  const void* address = tensor.data_ptr();
  tensor.record_stream(other);
  tensor.reset();
  EXPECT_NE(make({4096}).data_ptr(), address);
}

TEST_F(TensorTest, FromBlobFindsTheDeviceOfAPointer) {
  const at::Tensor tensor = make({64}, 1);
  const at::Tensor view = at::for_blob(tensor.data_ptr(), {64})
                              .options(at::TensorOptions().device(kDeviceType))
                              .make_tensor();
  EXPECT_EQ(view.device(), to_c10(1));
}

TEST_F(TensorTest, DetachedTensorsShareTheName) {
  const at::Tensor tensor = make({64});
  set_allocation_name(tensor, "weights");
  EXPECT_EQ(allocation_name(tensor.detach()), "weights");
}

TEST_F(TensorTest, OutOfMemoryIsTheUsualType) {
  EXPECT_THROW((void)make({std::int64_t{1} << 32}), c10::OutOfMemoryError);
  EXPECT_EQ(make({4}).numel(), 4);
}

}  // namespace
}  // namespace loom
