// SPDX-License-Identifier: BSD-3-Clause
// The zero-copy fallback: values, aliases, undeclared writes, resizes, errors and its report.

#include "loom/backend/allocator.h"
#include "loom/ops/fallback/fallback_report.h"

#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "support/loom_test.h"
#include <tuple>
#include <utility>

namespace loom {
namespace {

// Refuses what only the second of two optional operands brings, as kernels do that know fewer
// dtypes in one place than in another. Its inference knows nothing of that.
at::Tensor takes_two(const at::Tensor& self, const std::optional<at::Tensor>& first,
                     const std::optional<at::Tensor>& second, std::string_view mode) {
  TORCH_CHECK(!second || first, "a second operand without a first one");
  TORCH_CHECK(mode != "wrong", "an unknown mode");
  return self.clone();
}
at::Tensor infers_two(const at::Tensor& self, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&, std::string_view) {
  return at::empty_like(self);
}
// Makes its second result before its first, which is as large, and after a temporary of that size.
std::tuple<at::Tensor, at::Tensor> makes_two(const at::Tensor& self) {
  at::Tensor temporary = self.neg();
  at::Tensor first = temporary.neg();
  temporary.reset();
  at::Tensor second = self.add(1);
  return {std::move(first), std::move(second)};
}
std::tuple<at::Tensor, at::Tensor> infers_two_results(const at::Tensor& self) {
  return {at::empty_like(self), at::empty_like(self)};
}
TORCH_LIBRARY_FRAGMENT(aten, m) {
  m.def("_loom_makes_two(Tensor self) -> (Tensor, Tensor)");
  m.def("_loom_takes_two(Tensor self, Tensor? first, Tensor? second, str mode) -> Tensor");
}
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_loom_takes_two", takes_two);
  m.impl("_loom_makes_two", makes_two);
}
TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_loom_takes_two", infers_two);
  m.impl("_loom_makes_two", infers_two_results);
}

class FallbackTest : public LoomTest {
 protected:
  void SetUp() override { ops::reset_fallback_report(); }
};

TEST_F(FallbackTest, ComputesWhatCpuComputes) {
  const at::Tensor host = at::rand({6, 6}, at::kDouble);
  const auto [q, r] = at::linalg_qr(host);
  const auto [loom_q, loom_r] = at::linalg_qr(host.to(loom_device()));
  EXPECT_TRUE(loom_q.is_privateuseone());
  EXPECT_TRUE(at::equal(loom_q.to(at::kCPU), q));
  EXPECT_TRUE(at::equal(loom_r.to(at::kCPU), r));
}

TEST_F(FallbackTest, IsCountedByOperator) {
  (void)at::arange(5, at::kFloat).to(loom_device()).to_sparse();
  const auto report = ops::fallback_report();
  ASSERT_FALSE(report.empty());
  EXPECT_NE(report.front().name.find("to_sparse"), std::string::npos);
  EXPECT_EQ(report.front().count, 1u);
  EXPECT_GT(report.front().total_ns, 0);
  EXPECT_EQ(ops::fallback_count(), 1u);
}

TEST_F(FallbackTest, ResultsAreCountedByTheAllocator) {
  const at::Tensor input = at::rand({1 << 18}).to(loom_device());
  const auto before = caching_allocator(0).stats().allocated_bytes[0].current;
  const auto [values, indices] = at::_unique(input, /*sorted=*/true, /*return_inverse=*/true);
  const auto after = caching_allocator(0).stats().allocated_bytes[0].current;
  EXPECT_GE(after - before, static_cast<std::int64_t>(values.nbytes() + indices.nbytes()));
}

TEST_F(FallbackTest, ResizesAnOutputThatHasTheWrongSize) {
  const at::Tensor host = at::rand({3, 7});
  // Elements that it has already are resized by the CPU operator, with its warning.
  at::Tensor values = at::empty({5}, options());
  at::Tensor indices = at::empty({5}, options(at::kLong));
  at::kthvalue_out(values, indices, host.to(loom_device()), 3);
  EXPECT_EQ(values.sizes(), at::IntArrayRef({3}));
  EXPECT_TRUE(at::equal(values.to(at::kCPU), std::get<0>(at::kthvalue(host, 3))));
}

TEST_F(FallbackTest, ErrorsAreThoseOfCpuAndTheDeviceWorksOn) {
  const at::Tensor device = at::rand({4}).to(loom_device());
  EXPECT_THROW((void)at::kthvalue(device, 9), c10::Error);
  EXPECT_TRUE(at::equal(device.to(at::kCPU), device.to(at::kCPU)));
}

TEST_F(FallbackTest, OperandsOnDifferentDevicesAreRefused) {
  at::Tensor values = at::empty({3}, at::kFloat);
  at::Tensor indices = at::empty({3}, options(at::kLong));
  EXPECT_THROW(at::kthvalue_out(values, indices, at::rand({3, 4}).to(loom_device()), 1),
               c10::Error);
}

TEST_F(FallbackTest, ResultsOfOneSizeAreToldApart) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("aten::_loom_makes_two", "")
                      .typed<decltype(makes_two)>();
  const at::Tensor host = at::rand({50, 3});
  const auto [first, second] = op.call(host.to(loom_device()));
  EXPECT_TRUE(at::equal(first.cpu(), host));
  EXPECT_TRUE(at::equal(second.cpu(), host.add(1)));
  EXPECT_EQ(ops::fallback_count(), 0u);
}

// (A, B, -) was accepted, which says nothing of (A, -, B), nor of another mode.
TEST_F(FallbackTest, ARefusalOfAnotherPlaceOrModeIsRaisedAtTheCall) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("aten::_loom_takes_two", "")
                      .typed<decltype(takes_two)>();
  const at::Tensor device = at::ones({4}, at::kShort).to(loom_device());
  EXPECT_TRUE(at::equal(op.call(device, device, std::nullopt, "right").cpu(), device.cpu()));
  EXPECT_EQ(ops::fallback_count(), 0u);
  EXPECT_THROW((void)op.call(device, std::nullopt, device, "right"), c10::Error);
  EXPECT_THROW((void)op.call(device, device, std::nullopt, "wrong"), c10::Error);
  EXPECT_TRUE(at::equal(device.cpu(), at::ones({4}, at::kShort)));
}

}  // namespace
}  // namespace loom
