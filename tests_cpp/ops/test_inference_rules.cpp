// SPDX-License-Identifier: BSD-3-Clause
// Operators whose shapes PyTorch infers in Python only: a program without Python has rules of
// loom's own for them, and takes no fallback.
#include "loom/ops/fallback/fallback_report.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace loom {
namespace {

using Tensors = std::vector<at::Tensor>;

/// One operator on operands that `inputs` makes on cpu.
struct Case {
  std::string name;
  std::function<Tensors()> inputs;
  std::function<Tensors(const Tensors&)> call;
};
void PrintTo(const Case& each, std::ostream* stream) { *stream << each.name; }

at::Tensor numbers(at::IntArrayRef sizes) {
  at::manual_seed(3);
  return at::rand(sizes) * 0.9 + 0.05;
}
at::Tensor labels(at::IntArrayRef sizes, std::int64_t classes) {
  at::manual_seed(4);
  return at::randint(classes, sizes, at::kLong);
}

class InferenceRulesTest : public LoomTest, public ::testing::WithParamInterface<Case> {};

TEST_P(InferenceRulesTest, TakesNoFallbackAndAgreesWithCpu) {
  const Tensors on_cpu = GetParam().inputs();
  Tensors on_loom;
  for (const at::Tensor& tensor : on_cpu) on_loom.push_back(tensor.to(loom_device()));
  const Tensors expected = GetParam().call(on_cpu);
  ops::reset_fallback_report();
  const Tensors actual = GetParam().call(on_loom);
  for (const auto& entry : ops::fallback_report()) ADD_FAILURE() << entry.name << " fell back";
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].dtype(), expected[i].dtype());
    EXPECT_EQ(actual[i].sizes(), expected[i].sizes());
    EXPECT_EQ(actual[i].strides(), expected[i].strides());
    EXPECT_TRUE(at::allclose(actual[i].cpu(), expected[i], 1e-4, 1e-5)) << "result " << i;
  }
}

/// A result and the gradients of the first operands.
Tensors with_gradients(const std::function<at::Tensor(const Tensors&)>& function,
                       const Tensors& given, std::size_t wanted) {
  Tensors leaves = given;
  for (std::size_t i = 0; i < wanted; ++i) leaves[i] = given[i].detach().requires_grad_();
  const at::Tensor result = function(leaves);
  result.backward(at::ones_like(result));
  Tensors results{result.detach()};
  for (std::size_t i = 0; i < wanted; ++i) results.push_back(leaves[i].grad());
  return results;
}

Case differentiable(std::string name, std::function<Tensors()> inputs,
                    std::function<at::Tensor(const Tensors&)> function, std::size_t wanted = 1) {
  return {std::move(name), std::move(inputs),
          [function = std::move(function), wanted](const Tensors& x) {
            return with_gradients(function, x, wanted);
          }};
}
Case plain(std::string name, std::function<Tensors()> inputs,
           std::function<at::Tensor(const Tensors&)> function) {
  return {std::move(name), std::move(inputs),
          [function = std::move(function)](const Tensors& x) { return Tensors{function(x)}; }};
}

Tensors pair() { return {numbers({4, 6}), numbers({4, 6}) * 0.5}; }
Tensors matrix() { return {numbers({4, 6})}; }
Tensors classes() { return {numbers({4, 6}), labels({4}, 6)}; }
Tensors image() { return {numbers({2, 4, 6, 5})}; }
Tensors volume() { return {numbers({2, 4, 6, 5, 4})}; }
Tensors definite() {
  const at::Tensor x = numbers({4, 4});
  return {at::linalg_cholesky(at::matmul(x, x.t()) + at::eye(4)), numbers({4, 2})};
}

const std::vector<Case>& cases() {
  using R = at::Reduction::Reduction;
  static const std::vector<Case> all = {
      differentiable("huber_loss", pair,
                     [](const Tensors& x) { return at::huber_loss(x[0], x[1]); }),
      differentiable("huber_loss_each", pair,
                     [](const Tensors& x) { return at::huber_loss(x[0], x[1], R::None, 0.1); }),
      differentiable("smooth_l1_loss", pair,
                     [](const Tensors& x) { return at::smooth_l1_loss(x[0], x[1]); }),
      differentiable("binary_cross_entropy", pair,
                     [](const Tensors& x) { return at::binary_cross_entropy(x[0], x[1]); }),
      differentiable(
          "binary_cross_entropy_weighted",
          [] { return Tensors{numbers({4, 6}), numbers({4, 6}), numbers({6})}; },
          [](const Tensors& x) { return at::binary_cross_entropy(x[0], x[1], x[2], R::None); }),
      differentiable(
          "binary_cross_entropy_with_logits", pair,
          [](const Tensors& x) { return at::binary_cross_entropy_with_logits(x[0], x[1]); }),
      differentiable("multi_margin_loss", classes,
                     [](const Tensors& x) { return at::multi_margin_loss(x[0], x[1]); }),
      differentiable(
          "multilabel_margin_loss", [] { return Tensors{numbers({4, 6}), labels({4, 6}, 6)}; },
          [](const Tensors& x) { return at::multilabel_margin_loss(x[0], x[1]); }),
      differentiable("soft_margin_loss", pair,
                     [](const Tensors& x) { return at::soft_margin_loss(x[0], x[1]); }),
      differentiable(
          "nll_loss2d", [] { return Tensors{numbers({2, 4, 6, 5}), labels({2, 6, 5}, 4)}; },
          [](const Tensors& x) { return at::nll_loss2d(x[0], x[1]); }),
      differentiable(
          "grid_sampler_2d", [] { return Tensors{numbers({2, 4, 6, 5}), numbers({2, 3, 7, 2})}; },
          [](const Tensors& x) { return at::grid_sampler(x[0], x[1], 0, 0, false); }, 2),
      differentiable(
          "grid_sampler_3d",
          [] { return Tensors{numbers({2, 4, 6, 5, 4}), numbers({2, 3, 7, 2, 3})}; },
          [](const Tensors& x) { return at::grid_sampler(x[0], x[1], 0, 1, true); }, 2),
      differentiable("log_sigmoid", matrix, [](const Tensors& x) { return at::log_sigmoid(x[0]); }),
      differentiable("logit", matrix, [](const Tensors& x) { return at::logit(x[0]); }),
      differentiable("glu", matrix, [](const Tensors& x) { return at::glu(x[0]); }),
      differentiable(
          "prelu", [] { return Tensors{numbers({2, 4, 6}) - 0.5, numbers({4})}; },
          [](const Tensors& x) { return at::prelu(x[0], x[1]); }, 2),
      differentiable(
          "im2col", image,
          [](const Tensors& x) { return at::im2col(x[0], {3, 2}, {1, 1}, {1, 0}, {2, 1}); }),
      differentiable(
          "col2im", [] { return Tensors{numbers({2, 12, 20})}; },
          [](const Tensors& x) {
            return at::col2im(x[0], {5, 6}, {2, 2}, {1, 1}, {0, 0}, {1, 1});
          }),
      differentiable("adaptive_avg_pool2d", image,
                     [](const Tensors& x) { return at::adaptive_avg_pool2d(x[0], {3, 2}); }),
      differentiable("adaptive_avg_pool3d", volume,
                     [](const Tensors& x) { return at::adaptive_avg_pool3d(x[0], {3, 2, 2}); }),
      differentiable("max_pool3d", volume,
                     [](const Tensors& x) { return at::max_pool3d(x[0], {2, 2, 2}); }),
      plain(
          "max_unpool2d", [] { return Tensors{numbers({2, 3, 4, 4}), labels({2, 3, 4, 4}, 1)}; },
          [](const Tensors& x) { return at::max_unpool2d(x[0] * 0 + 1, x[1], {8, 8}); }),
      differentiable("replication_pad2d", image,
                     [](const Tensors& x) { return at::replication_pad2d(x[0], {1, 2, 0, 1}); }),
      differentiable("reflection_pad2d", image,
                     [](const Tensors& x) { return at::reflection_pad2d(x[0], {1, 2, 0, 1}); }),
      plain("channel_shuffle", image,
            [](const Tensors& x) { return at::channel_shuffle(x[0], 2); }),
      differentiable("roll", matrix, [](const Tensors& x) { return at::roll(x[0], 2, 1); }),
      differentiable("roll_of_two", matrix,
                     [](const Tensors& x) { return at::roll(x[0], {1, -2}, {0, 1}); }),
      differentiable("flip", matrix, [](const Tensors& x) { return at::flip(x[0], {0, 1}); }),
      differentiable("unfold", matrix, [](const Tensors& x) { return x[0].unfold(1, 3, 2) * 2; }),
      differentiable("index_put", matrix,
                     [](const Tensors& x) {
                       const at::Tensor index = at::arange(2, x[0].options().dtype(at::kLong));
                       return at::index_put(x[0] * 2, {index}, x[0][0]);
                     }),
      plain("index_fill", matrix,
            [](const Tensors& x) {
              const at::Tensor index = at::arange(2, x[0].options().dtype(at::kLong));
              return at::index_fill(x[0], 1, index, 7);
            }),
      plain(
          "take", [] { return Tensors{numbers({4, 6}), labels({3}, 20)}; },
          [](const Tensors& x) { return at::take(x[0], x[1]); }),
      {"std_mean", matrix,
       [](const Tensors& x) {
         const auto [deviation, mean] = at::std_mean(x[0], at::IntArrayRef{1}, 1, true);
         return Tensors{deviation, mean};
       }},
      {"var_mean", matrix,
       [](const Tensors& x) {
         const auto [variance, mean] = at::var_mean(x[0], at::IntArrayRef{1}, 1, true);
         return Tensors{variance, mean};
       }},
      {"frexp", matrix,
       [](const Tensors& x) {
         const auto [mantissa, exponent] = at::frexp(x[0]);
         return Tensors{mantissa, exponent};
       }},
      {"mode", matrix,
       [](const Tensors& x) {
         const auto [values, indices] = at::mode(x[0], 1);
         return Tensors{values, indices};
       }},
      plain("arange", matrix,
            [](const Tensors& x) { return at::arange(1, 9.5, 2, x[0].options()); }),
      plain(
          "arange_of_integers", matrix,
          [](const Tensors& x) { return at::arange(9, -3, -2, x[0].options().dtype(at::kLong)); }),
      plain("linspace", matrix,
            [](const Tensors& x) { return at::linspace(0, 1, 7, x[0].options()); }),
      plain("logspace", matrix,
            [](const Tensors& x) { return at::logspace(0, 1, 7, 2, x[0].options()); }),
      plain("count_nonzero", matrix,
            [](const Tensors& x) { return at::count_nonzero(x[0] > 0.5, at::IntArrayRef{1}); }),
      plain("trace", matrix, [](const Tensors& x) { return at::trace(x[0]); }),
      plain("prod", matrix, [](const Tensors& x) { return at::prod(x[0]); }),
      plain("median", matrix, [](const Tensors& x) { return at::median(x[0]); }),
      plain("angle", matrix,
            [](const Tensors& x) { return at::angle(at::complex(x[0], x[0] + 1)); }),
      plain("nan_to_num", matrix, [](const Tensors& x) { return at::nan_to_num(x[0] / 0); }),
      plain("histc", matrix, [](const Tensors& x) { return at::histc(x[0], 5, 0, 1); }),
      plain(
          "searchsorted", [] { return Tensors{at::linspace(0, 1, 5), numbers({4, 6})}; },
          [](const Tensors& x) { return at::searchsorted(x[0], x[1]); }),
      plain(
          "bucketize", [] { return Tensors{numbers({4, 6}), at::linspace(0, 1, 5)}; },
          [](const Tensors& x) { return at::bucketize(x[0], x[1], /*out_int32=*/true); }),
      differentiable(
          "cdist", [] { return Tensors{numbers({2, 4, 6}), numbers({2, 3, 6}) + 1}; },
          [](const Tensors& x) { return at::cdist(x[0], x[1]); }, 2),
      differentiable("pdist", matrix, [](const Tensors& x) { return at::pdist(x[0]); }),
      plain(
          "addbmm", [] { return Tensors{numbers({4, 5}), numbers({2, 4, 6}), numbers({2, 6, 5})}; },
          [](const Tensors& x) { return at::addbmm(x[0], x[1], x[2]); }),
      plain(
          "addr", [] { return Tensors{numbers({4, 5}), numbers({4}), numbers({5})}; },
          [](const Tensors& x) { return at::addr(x[0], x[1], x[2]); }),
      plain("cholesky_solve", definite,
            [](const Tensors& x) { return at::cholesky_solve(x[1], x[0]); }),
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operators, InferenceRulesTest, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace loom
