// SPDX-License-Identifier: BSD-3-Clause
// Computing operators as a C++ program sees them: asynchronous, on the caller's errors, the same
// as on cpu.

#include "loom/ops/fallback/fallback_report.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"

namespace loom {
namespace {

class ComputeTest : public LoomTest {
 protected:
  static at::Tensor on_loom(const at::Tensor& host) { return host.to(loom_device()); }
  static void expect_close(const at::Tensor& device, const at::Tensor& host) {
    EXPECT_EQ(device.strides(), host.strides());
    EXPECT_TRUE(at::allclose(device.to(at::kCPU), host, 1e-4, 1e-5));
  }
};

TEST_F(ComputeTest, OperatorsReturnBeforeTheyRun) {
  const at::Tensor x = on_loom(at::ones({500, 500}));
  at::Tensor result;
  {
    QueueHold hold(current_queue(0));
    result = at::relu(at::addmm(x, x, x) - 500).softmax(1).sum();
    EXPECT_FALSE(current_queue(0).idle());
  }
  EXPECT_NEAR(result.item<float>(), 500, 0.01);
}

TEST_F(ComputeTest, ShapeAndDtypeErrorsAreTheCallers) {
  const at::Tensor x = on_loom(at::ones({2, 3}));
  QueueHold hold(current_queue(0));
  EXPECT_THROW((void)at::mm(x, x), c10::Error);
  EXPECT_THROW((void)at::mm(x, x.t().to(at::kDouble)), c10::Error);
  EXPECT_THROW((void)(x + on_loom(at::ones({4}))), c10::Error);
  EXPECT_THROW((void)at::softmax(x, 2), c10::Error);
  EXPECT_THROW((void)at::mm(x, at::ones({3, 2})), c10::Error);
}

TEST_F(ComputeTest, KernelErrorsComeWithTheNextSynchronisationAndOnlyOnce) {
  const at::Tensor x = on_loom(at::ones({4, 2}));
  const at::Tensor index = on_loom(at::tensor(std::vector<std::int64_t>{1, 9}));
  const at::Tensor chosen = at::index_select(x, 0, index);
  EXPECT_THROW(current_queue(0).synchronize(), std::exception);
  current_queue(0).synchronize();
  EXPECT_EQ(x.sum().item<float>(), 8);
}

TEST_F(ComputeTest, CutOperatorsAgreeWithCpu) {
  const at::Tensor a = at::rand({700, 600});
  const at::Tensor b = at::rand({600, 500});
  expect_close(at::mm(on_loom(a), on_loom(b)), at::mm(a, b));
  expect_close(on_loom(a).softmax(-1), a.softmax(-1));
  expect_close(on_loom(a).sum(0), a.sum(0));
  expect_close(on_loom(a).sum(), a.sum());
  expect_close(at::add(on_loom(a), on_loom(a[0]), 2), at::add(a, a[0], 2));
  const at::Tensor images = at::rand({9, 8, 20, 20});
  const at::Tensor filters = at::rand({6, 8, 3, 3});
  expect_close(at::conv2d(on_loom(images), on_loom(filters)), at::conv2d(images, filters));
}

TEST_F(ComputeTest, NothingFallsBack) {
  ops::reset_fallback_report();
  const at::Tensor a = on_loom(at::rand({40, 40}));
  (void)(at::mm(a, a).relu().sum() / 2);
  EXPECT_TRUE(ops::fallback_report().empty());
}

}  // namespace
}  // namespace loom
