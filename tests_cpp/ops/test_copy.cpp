// SPDX-License-Identifier: BSD-3-Clause
// Copies in every direction, as a C++ program makes them.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"

namespace loom {
namespace {

class CopyTest : public LoomTest {
 protected:
  static at::Tensor numbers(std::int64_t count, c10::ScalarType dtype = at::kFloat) {
    return at::arange(count, at::TensorOptions().dtype(dtype));
  }
};

TEST_F(CopyTest, RoundTripKeepsEveryValue) {
  for (const std::int64_t count : {1, 1000, 100'000, 3'000'001}) {
    const at::Tensor host = numbers(count);
    EXPECT_TRUE(at::equal(host.to(loom_device()).to(at::kCPU), host)) << count;
  }
}

TEST_F(CopyTest, HostSourceMayChangeRightAfterASmallCopy) {
  at::Tensor host = numbers(16);
  const at::Tensor expected = host.clone();
  const at::Tensor copy = at::empty({16}, options());
  {
    QueueHold hold(current_queue(0));
    copy.copy_(host);  // returns although the queue is held
    host.fill_(-1);
  }
  EXPECT_TRUE(at::equal(copy.to(at::kCPU), expected));
}

TEST_F(CopyTest, PinnedNonBlockingCopiesReturnBeforeTheyRun) {
  const at::Tensor source = numbers(1 << 20).pin_memory();
  const at::Tensor device = at::empty({1 << 20}, options());
  at::Tensor back = at::zeros({1 << 20}, at::kFloat).pin_memory();
  {
    QueueHold hold(current_queue(0));
    device.copy_(source, /*non_blocking=*/true);
    back.copy_(device, /*non_blocking=*/true);
    EXPECT_FALSE(current_queue(0).idle());
    EXPECT_EQ(back[5].item<float>(), 0);
  }
  current_queue(0).synchronize();
  EXPECT_TRUE(at::equal(back, source));
}

TEST_F(CopyTest, ConvertsDtypesAndStridesOnTheWay) {
  const at::Tensor host = numbers(24, at::kLong).view({4, 6});
  const at::Tensor device = at::empty({6, 4}, options(at::kDouble));
  device.copy_(host.t());
  EXPECT_TRUE(at::equal(device.to(at::kCPU), host.t().to(at::kDouble)));
  const at::Tensor narrow = at::empty({6, 4}, at::TensorOptions().dtype(at::kInt));
  narrow.copy_(device.t().t());
  EXPECT_TRUE(at::equal(narrow, host.t().to(at::kInt)));
}

TEST_F(CopyTest, BroadcastsTheSource) {
  const at::Tensor device = at::empty({3, 5}, options());
  device.copy_(numbers(5).to(loom_device()));
  EXPECT_TRUE(at::equal(device.to(at::kCPU), numbers(5).expand({3, 5})));
}

TEST_F(CopyTest, RefusesAShapeThatDoesNotBroadcast) {
  const at::Tensor device = at::empty({3}, options());
  EXPECT_THROW(device.copy_(at::empty({4}, options())), c10::Error);
}

TEST_F(CopyTest, OverlappingDestinationIsRefused) {
  const at::Tensor device = at::empty({1}, options()).expand({4});
  EXPECT_THROW(device.copy_(at::empty({4}, options())), c10::Error);
}

}  // namespace
}  // namespace loom
