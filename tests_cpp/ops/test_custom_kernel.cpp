// SPDX-License-Identifier: BSD-3-Clause
// Kernels of operator libraries outside of loom: how they are cut, ordered, and refused.

#include "loom/ops/custom_kernel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"
#include <atomic>
#include <stdexcept>
#include <string>

namespace loom {
namespace {

// A block of this is worth another core.
constexpr double kDear = 1e6;

class CustomKernelTest : public LoomTest {
 protected:
  static at::Tensor on_loom(const at::Tensor& host) { return host.to(loom_device()); }
  static at::Tensor new_like(const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), options());
  }
};

void add(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor(to).copy_(a + b);
}

TEST_F(CustomKernelTest, ItSeesCpuTensorsOverTheMemoryOfItsOperands) {
  const at::Tensor a = at::rand({4, 3});
  const at::Tensor there = on_loom(a);
  const at::Tensor result = new_like(a);
  launch(
      "test::whole", Whole{},
      [](const at::Tensor& to, const at::Tensor& from, const at::Tensor& absent) {
        TORCH_CHECK(to.is_cpu() && from.is_cpu() && !absent.defined());
        at::Tensor(to).copy_(from * 2);
      },
      out(result), there, at::Tensor());
  EXPECT_TRUE(at::equal(result.cpu(), a * 2));
}

TEST_F(CustomKernelTest, PointwiseBlocksMakeUpTheResult) {
  const at::Tensor a = at::rand({64, 33});
  const at::Tensor row = at::rand({33});
  const at::Tensor result = new_like(a);
  std::atomic<int> calls{0};
  const auto counted_add = [&calls](const at::Tensor& to, const at::Tensor& x,
                                    const at::Tensor& y) {
    ++calls;
    add(to, x, y);
  };
  launch("test::add", Pointwise{kDear}, counted_add, out(result), on_loom(a), on_loom(row));
  EXPECT_TRUE(at::equal(result.cpu(), a + row));
  EXPECT_GT(calls, 1);
  calls = 0;
  launch("test::add", Pointwise{}, counted_add, out(result), on_loom(a), on_loom(a));
  EXPECT_TRUE(at::equal(result.cpu(), a + a));
  EXPECT_EQ(calls, 1);  // what is cheap is not cut
}

TEST_F(CustomKernelTest, OperandsAreCutAlongTheirOwnDimensions) {
  const at::Tensor a = at::rand({7, 5});
  const at::Tensor table = at::rand({3});
  const at::Tensor result = new_like(a.t());
  launch(
      "test::transpose", Along{.dims = {1, 0, Along::kWhole}, .cost = kDear},
      [](const at::Tensor& to, const at::Tensor& from, const at::Tensor& whole) {
        TORCH_CHECK(to.size(1) == 1 && from.size(0) == 1 && whole.size(0) == 3);
        at::Tensor(to).copy_(from.t() + whole[2]);
      },
      out(result), on_loom(a), on_loom(table));
  EXPECT_TRUE(at::equal(result.cpu(), a.t() + table[2]));
}

TEST_F(CustomKernelTest, ItReturnsBeforeItRunsAndKeepsTheOrderOfItsStream) {
  const at::Tensor x = on_loom(at::ones({8}));
  {
    QueueHold hold(current_queue(0));
    launch("test::double", Whole{}, [](const at::Tensor& to) { at::Tensor(to).mul_(2); }, inout(x));
    x.add_(1);
    EXPECT_FALSE(current_queue(0).idle());
  }
  EXPECT_TRUE(at::equal(x.cpu(), at::ones({8}) * 3));
}

TEST_F(CustomKernelTest, TheValueOfACpuScalarIsThatOfTheCall) {
  const at::Tensor result = new_like(at::ones({3}));
  at::Tensor scalar = at::ones({});
  {
    QueueHold hold(current_queue(0));
    launch("test::add", Pointwise{}, add, out(result), on_loom(at::zeros({3})), scalar);
    scalar.fill_(5);
  }
  EXPECT_TRUE(at::equal(result.cpu(), at::ones({3})));
}

TEST_F(CustomKernelTest, ErrorsOfKernelsNameTheOperatorAndStayWithTheResult) {
  const at::Tensor result = new_like(at::ones({3}));
  launch(
      "test::fails", Whole{}, [](const at::Tensor&) { throw std::runtime_error("no luck"); },
      out(result));
  for (int look = 0; look < 2; ++look) {
    try {
      (void)result.cpu();
      FAIL() << "a value that was never made was read";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("test::fails"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("no luck"), std::string::npos) << error.what();
    }
  }
  launch("test::fill", Whole{}, [](const at::Tensor& to) { at::Tensor(to).fill_(1); }, out(result));
  EXPECT_TRUE(at::equal(result.cpu(), at::ones({3})));
}

TEST_F(CustomKernelTest, WhatDoesNotFitIsRefusedAtTheCall) {
  const at::Tensor x = on_loom(at::ones({2, 3}));
  const auto copy = [](const at::Tensor& to, const at::Tensor& from) {
    at::Tensor(to).copy_(from);
  };
  QueueHold hold(current_queue(0));
  EXPECT_THROW(launch("test::copy", Whole{}, copy, out(x), at::ones({2, 3})), c10::Error);
  EXPECT_THROW(launch("test::copy", Whole{}, copy, out(at::ones({2, 3})), x), c10::Error);
  EXPECT_THROW(launch("test::copy", Along{.dims = {0}}, copy, out(x), x), c10::Error);
  EXPECT_THROW(launch("test::copy", Along{.dims = {0, 2}}, copy, out(x), x), c10::Error);
  EXPECT_THROW(launch("test::copy", Along{.dims = {0, 1}}, copy, out(x), x), c10::Error);
}

}  // namespace
}  // namespace loom
