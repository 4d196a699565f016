// SPDX-License-Identifier: BSD-3-Clause
// What inferences are kept by: keys tell calls apart that may have different results, and answers
// are forgotten when they are not asked for.
#include "loom/ops/fallback/ask_meta.h"
#include "loom/ops/meta/call_key.h"
#include "loom/ops/meta/kept_answers.h"

#include <ATen/Context.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"
#include <future>
#include <random>
#include <vector>

namespace loom::ops {
namespace {

using Values = std::vector<c10::IValue>;

c10::OperatorHandle named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

class CallKeyTest : public LoomTest {
 protected:
  static CallKey key(const Values& values, const char* name = "aten::trace") {
    return CallKey::of(named(name), values).value();
  }
  static at::Tensor matrix(at::IntArrayRef sizes = {2, 3}, at::IntArrayRef strides = {3, 1},
                           c10::ScalarType dtype = at::kFloat) {
    return at::empty_strided(sizes, strides, options(dtype));
  }
};

TEST_F(CallKeyTest, CallsThatLookAlikeHaveOneKey) {
  EXPECT_EQ(key({matrix(), 1, 2.5, "mean"}), key({matrix(), 1, 2.5, "mean"}));
  EXPECT_EQ(key({matrix()}).hash(), key({matrix()}).hash());
}

// Each of these calls differs from the first in one thing.
TEST_F(CallKeyTest, WhateverAnInferenceMayLookAtIsInTheKey) {
  const at::Tensor complex = matrix({2, 3}, {3, 1}, at::kComplexFloat);
  const at::Tensor wanting = matrix().requires_grad_();
  const std::vector<Values> calls = {
      {matrix()},
      {},
      {matrix({3, 2}, {3, 1})},
      {matrix({2, 3}, {1, 2})},
      {matrix({2, 3}, {3, 1}, at::kDouble)},
      {matrix({2, 3, 1}, {3, 1, 1})},
      {wanting},
      {complex},
      {complex.conj()},
      {at::_neg_view(matrix())},
      {at::Tensor()},
      {c10::IValue()},
      {0},
      {1},
      {false},
      {true},
      {0.0},
      {-0.0},
      {1.0},
      {c10::complex<double>(1, 0)},
      {c10::complex<double>(1, 1)},
      {""},
      {"mean"},
      {"sum"},
      {at::scalar_tensor(1)},
      {at::scalar_tensor(2)},
      {at::scalar_tensor(1, at::kDouble)},
      {c10::List<std::int64_t>()},
      {c10::List<std::int64_t>({1, 2})},
      {c10::List<std::int64_t>({1}), 2},
      {c10::List<std::int64_t>({1}), c10::List<std::int64_t>({2})},
      {c10::List<double>({1, 2})},
      {c10::List<bool>({true, false})},
      {c10::List<at::Tensor>({matrix()})},
      {c10::List<at::Tensor>({matrix(), matrix()})},
      {matrix(), matrix()},
      {c10::List<std::optional<at::Tensor>>({matrix(), std::nullopt})},
      {c10::List<std::optional<at::Tensor>>({std::nullopt, matrix()})},
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t j = 0; j < calls.size(); ++j) {
      EXPECT_EQ(key(calls[i]) == key(calls[j]), i == j) << "calls " << i << " and " << j;
    }
  }
  EXPECT_NE(key({matrix()}, "aten::trace"), key({matrix()}, "aten::angle"));
}

TEST_F(CallKeyTest, SettingsThatInferencesAskForAreInTheKey) {
  const CallKey before = key({matrix()});
  {
    const c10::AutoGradMode other(!c10::GradMode::is_enabled());
    EXPECT_NE(key({matrix()}), before);
  }
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  EXPECT_NE(key({matrix()}), before);
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_NE(key({matrix()}), before);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  EXPECT_FALSE(CallKey::of(named("aten::trace"), Values{matrix()}));  // its warnings are wanted
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_EQ(key({matrix()}), before);
}

TEST_F(CallKeyTest, WhatIsNotGeometryIsNotKept) {
  const auto op = named("aten::trace");
  EXPECT_FALSE(CallKey::of(op, Values{loom_device()}));
  EXPECT_FALSE(CallKey::of(op, Values{at::empty({2, 3}, at::kFloat)}));  // host memory
  EXPECT_FALSE(CallKey::of(op, Values{c10::List<std::int64_t>(std::vector<std::int64_t>(5000))}));
}

class KeptAnswersTest : public CallKeyTest {
 protected:
  static std::shared_ptr<const int> answer(int value) { return std::make_shared<const int>(value); }
};

TEST_F(KeptAnswersTest, FindsWhatWasPutIn) {
  KeptAnswers<int> kept(1000);
  EXPECT_EQ(kept.find(key({1})), nullptr);
  kept.insert(key({1}), answer(10));
  kept.insert(key({2}), answer(20));
  EXPECT_EQ(*kept.find(key({1})), 10);
  EXPECT_EQ(*kept.find(key({2})), 20);
  EXPECT_EQ(kept.find(key({3})), nullptr);
}

TEST_F(KeptAnswersTest, TheFirstOfTwoThreadsWins) {
  KeptAnswers<int> kept(1000);
  kept.insert(key({1}), answer(10));
  kept.insert(key({1}), answer(11));
  EXPECT_EQ(*kept.find(key({1})), 10);
  EXPECT_EQ(kept.size(), 1u);
}

TEST_F(KeptAnswersTest, WhatIsAskedForStaysAndTheRestIsForgotten) {
  KeptAnswers<int> kept(1000);
  kept.insert(key({-1}), answer(-1));
  for (int i = 0; i < 10000; ++i) {
    kept.insert(key({i}), answer(i));
    ASSERT_NE(kept.find(key({-1})), nullptr) << "after " << i;
  }
  EXPECT_EQ(kept.find(key({0})), nullptr);
  EXPECT_LT(kept.size(), 40u);
}

// Threads that launch the same few operators while others forget them.
TEST_F(KeptAnswersTest, AnswersBelongToTheirKeysHoweverManyThreadsAsk) {
  constexpr int kThreads = 4, kRounds = 5000, kKeys = 40;
  KeptAnswers<int> kept(1000);  // fewer than there are keys
  std::vector<std::future<int>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(std::async(std::launch::async, [&kept, t] {
      std::minstd_rand random(t + 1);
      int wrong = 0;
      for (int round = 0; round < kRounds; ++round) {
        const int value = static_cast<int>(random() % kKeys);
        const auto found = kept.find(key({value}));
        wrong += found && *found != value ? 1 : 0;
        if (!found) kept.insert(key({value}), answer(value));
      }
      return wrong;
    }));
  }
  for (auto& thread : threads) EXPECT_EQ(thread.get(), 0);
}

// ATen has an inference of put_ that needs no Python; complex tensors are ATen's to put.
TEST_F(CallKeyTest, AnInferenceRunsOnceForAGeometry) {
  const auto runs_of = [](at::Tensor self) {
    const at::Tensor index = at::empty({1}, options(at::kLong)).fill_(2);
    const at::Tensor source = at::empty({1}, self.options()).fill_(5);
    const std::uint64_t before = meta_kernel_runs();
    self.put_(index, source);
    EXPECT_EQ(at::view_as_real(self).sum().item<double>(), 5);
    return meta_kernel_runs() - before;
  };
  EXPECT_EQ(runs_of(at::empty({7, 9}, options(at::kComplexDouble)).zero_()), 1u);
  EXPECT_EQ(runs_of(at::empty({7, 9}, options(at::kComplexDouble)).zero_()), 0u);
  EXPECT_EQ(runs_of(at::empty({9, 7}, options(at::kComplexDouble)).zero_()), 1u);
  EXPECT_EQ(runs_of(at::empty({9, 7}, options(at::kComplexDouble)).zero_()), 0u);
}

}  // namespace
}  // namespace loom::ops
