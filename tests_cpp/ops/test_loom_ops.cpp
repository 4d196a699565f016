// SPDX-License-Identifier: BSD-3-Clause
// The operator library loom_ops as a C++ program calls it.

#include "loom/ops/fallback_report.h"
#include "loom/ops/loom_ops/loom_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"

namespace loom {
namespace {

using loom_ops::myadd;
using loom_ops::mymatmul;

class LoomOpsTest : public LoomTest {
 protected:
  static at::Tensor on_loom(const at::Tensor& host) { return host.to(loom_device()); }
};

TEST_F(LoomOpsTest, BothDevicesComputeTheSame) {
  const at::Tensor a = at::rand({300, 200});
  const at::Tensor b = at::rand({200, 100});
  const at::Tensor row = at::rand({200}, at::kDouble);
  EXPECT_TRUE(at::equal(myadd(a, row), at::add(a, row)));
  EXPECT_TRUE(at::equal(myadd(on_loom(a), on_loom(row)).cpu(), at::add(a, row)));
  EXPECT_TRUE(at::equal(mymatmul(a, b), at::mm(a, b)));
  EXPECT_TRUE(at::allclose(mymatmul(on_loom(a), on_loom(b)).cpu(), at::mm(a, b), 1e-4, 1e-4));
  const at::Tensor batch = at::rand({5, 30, 20});
  const at::Tensor other = at::rand({5, 20, 7});
  EXPECT_TRUE(at::allclose(mymatmul(on_loom(batch), on_loom(other)).cpu(), at::bmm(batch, other)));
}

TEST_F(LoomOpsTest, TheyReturnBeforeTheyRun) {
  ops::reset_fallback_report();
  const at::Tensor x = on_loom(at::ones({64, 64}));
  at::Tensor result;
  {
    QueueHold hold(current_queue(0));
    result = myadd(mymatmul(x, x), x);
    EXPECT_FALSE(current_queue(0).idle());
  }
  EXPECT_EQ(result[0][0].item<float>(), 65);
  EXPECT_TRUE(ops::fallback_report().empty());
}

TEST_F(LoomOpsTest, ShapesDtypesAndDevicesAreTheCallers) {
  const at::Tensor x = on_loom(at::ones({2, 3}));
  EXPECT_THROW((void)myadd(x, on_loom(at::ones({4}))), c10::Error);
  EXPECT_THROW((void)myadd(x, at::ones({2, 3})), c10::Error);
  EXPECT_THROW((void)mymatmul(x, x), c10::Error);
  EXPECT_THROW((void)mymatmul(x, x[0]), c10::Error);
  EXPECT_THROW((void)mymatmul(x, x.t().to(at::kDouble)), c10::Error);
  EXPECT_THROW((void)mymatmul(x.to(at::kLong), x.t().to(at::kLong)), c10::Error);
  EXPECT_THROW((void)mymatmul(x.unsqueeze(0), on_loom(at::ones({2, 3, 1}))), c10::Error);
}

TEST_F(LoomOpsTest, ProductsOfNothingAreZero) {
  const at::Tensor product = mymatmul(on_loom(at::ones({3, 0})), on_loom(at::ones({0, 4})));
  EXPECT_TRUE(at::equal(product.cpu(), at::zeros({3, 4})));
  EXPECT_EQ(mymatmul(on_loom(at::ones({0, 2})), on_loom(at::ones({2, 4}))).numel(), 0);
}

TEST_F(LoomOpsTest, GradientsReachBroadcastAndPromotedOperands) {
  const at::Tensor a = on_loom(at::ones({4, 3})).requires_grad_();
  const at::Tensor b = on_loom(at::ones({3}, at::kDouble)).requires_grad_();
  const at::Tensor c = on_loom(at::ones({3, 2}, at::kDouble)).requires_grad_();
  mymatmul(myadd(a, b), c).sum().backward();
  EXPECT_EQ(a.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(a.grad().cpu(), at::ones({4, 3}) * 2));
  EXPECT_TRUE(at::equal(b.grad().cpu(), at::ones({3}, at::kDouble) * 8));
  EXPECT_TRUE(at::equal(c.grad().cpu(), at::ones({3, 2}, at::kDouble) * 8));
}

TEST_F(LoomOpsTest, AutocastLowersTheProductAndWidensTheSum) {
  const at::Tensor a = on_loom(at::ones({2, 2}));
  const at::Tensor low = a.to(at::kBFloat16);
  at::autocast::set_autocast_dtype(at::kPrivateUse1, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kPrivateUse1, true);
  const at::Tensor product = mymatmul(a, a);
  const at::Tensor sum = myadd(a, low);
  at::autocast::set_autocast_enabled(at::kPrivateUse1, false);
  at::autocast::clear_cache();
  EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_EQ(mymatmul(a, a).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace loom
