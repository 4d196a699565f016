// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/deferred_split.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <vector>

namespace loom::ops {
namespace {

using Kind = SplitRule::Kind;

std::optional<DeferredSplit> split(const SplitRule& rule, const std::vector<c10::IValue>& given,
                                   const std::vector<at::Tensor>& results) {
  ResultSizes sizes;
  for (const at::Tensor& result : results) {
    sizes.push_back(result.defined() ? std::optional(result.sizes()) : std::nullopt);
  }
  return split_of({{rule}}, given, std::vector<bool>(given.size(), false), sizes);
}

at::Tensor tensor(c10::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().device(c10::kPrivateUse1));
}

SplitRule rule_of(const char* name, const char* overload = "") {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const auto rules = split_rules(op);
  EXPECT_EQ(rules.size(), 1) << name;
  return rules.empty() ? SplitRule{} : rules[0];
}

TEST(DeferredSplitTest, PointwiseOperatorsAreKnownByTheirTag) {
  EXPECT_EQ(rule_of("aten::frexp", "Tensor").kind, Kind::kPointwise);
  EXPECT_EQ(rule_of("aten::complex").kind, Kind::kPointwise);
}

TEST(DeferredSplitTest, OthersAreOneBlock) {
  EXPECT_TRUE(split_rules(c10::Dispatcher::singleton().findSchemaOrThrow("aten::put", "")).empty());
}

TEST(DeferredSplitTest, PointwiseOperandsBroadcast) {
  const auto cut =
      split({Kind::kPointwise, 0, 1}, {tensor({900, 1}), tensor({500}), 3.0}, {tensor({900, 500})});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->items, 900);
  EXPECT_EQ(cut->arguments, (std::vector<std::int8_t>{0, -1, -1}));
  EXPECT_EQ(cut->results, (std::vector<std::int8_t>{0}));
  EXPECT_GT(cut->blocks(), 1);
}

TEST(DeferredSplitTest, ALeadingDimensionOfOneIsPassedOver) {
  const auto cut =
      split({Kind::kPointwise, 0, 1}, {tensor({1, 900, 500})}, {tensor({1, 900, 500})});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->results, (std::vector<std::int8_t>{1}));
}

TEST(DeferredSplitTest, SmallCallsAreOneBlock) {
  EXPECT_FALSE(split({Kind::kPointwise, 0, 1}, {tensor({9, 5})}, {tensor({9, 5})}));
}

TEST(DeferredSplitTest, DimensionsThatAreNamedAreNotCut) {
  const SplitRule rule{Kind::kOthers, 1, 1};
  const at::Tensor x = tensor({900, 500});
  const auto rows = split(rule, {x, 1}, {tensor({900, 500})});
  const auto columns = split(rule, {x, -2}, {tensor({900, 500})});
  ASSERT_TRUE(rows && columns);
  EXPECT_EQ(rows->arguments[0], 0);
  EXPECT_EQ(columns->arguments[0], 1);
  EXPECT_FALSE(split(rule, {x, std::vector<std::int64_t>{0, 1}}, {tensor({900, 500})}));
  EXPECT_FALSE(split(rule, {x, std::vector<std::int64_t>{}}, {tensor({900, 500})}));
  EXPECT_FALSE(split(rule, {x, c10::IValue()}, {tensor({900, 500})}));
}

TEST(DeferredSplitTest, AReducedDimensionIsMissingInTheResults) {
  const auto cut = split({Kind::kOthers, 1, 10}, {tensor({2, 300, 500}), 0},
                         {tensor({300, 500}), tensor({300, 500})});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->arguments[0], 1);
  EXPECT_EQ(cut->results, (std::vector<std::int8_t>{0, 0}));
}

TEST(DeferredSplitTest, GivenResultsAreCutAsNewOnesAre) {
  const std::vector<c10::IValue> given = {tensor({2, 300, 500}), tensor({2, 300}), tensor({2, 300}),
                                          2};
  const auto cut =
      split_of({{{Kind::kOthers, 3, 10}}}, given, {false, true, true, false}, ResultSizes());
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->arguments, (std::vector<std::int8_t>{1, 1, 1, -1}));
  const auto each = split_of({{{Kind::kPointwise, 0, 4}}},
                             {{tensor({500}), tensor({900, 500}), tensor({900, 500})}},
                             {false, true, true}, ResultSizes());
  ASSERT_TRUE(each);
  EXPECT_EQ(each->arguments, (std::vector<std::int8_t>{-1, 0, 0}));
  EXPECT_FALSE(split_of({{{Kind::kPointwise, 0, 4}}},
                        {{tensor({900, 500}), tensor({900, 500}), tensor({1, 500})}},
                        {false, true, true}, ResultSizes()));
}

TEST(DeferredSplitTest, GradientsOfAMeanAreOneBlock) {
  const SplitRule rule = rule_of("aten::binary_cross_entropy_backward");
  const at::Tensor x = tensor({900, 500});
  const auto reduced = [&](std::int64_t reduction) {
    return split(rule, {x, x, x, c10::IValue(), reduction}, {x});
  };
  EXPECT_TRUE(reduced(at::Reduction::None));
  EXPECT_TRUE(reduced(at::Reduction::Sum));
  EXPECT_FALSE(reduced(at::Reduction::Mean));
}

TEST(DeferredSplitTest, SamplesOfTensorsWithDifferentDimensions) {
  const SplitRule rule = rule_of("aten::nll_loss2d_backward");
  const at::Tensor scores = tensor({900, 3, 10, 10}), labels = tensor({900, 10, 10});
  const at::Tensor weight = tensor({3}), number = tensor({});
  const auto each = split(rule, {labels, scores, labels, weight, 0, -100, number}, {scores});
  ASSERT_TRUE(each);
  EXPECT_EQ(each->arguments, (std::vector<std::int8_t>{0, 0, 0, -1, -1, -1, -1}));
  const auto sum = split(rule, {number, scores, labels, weight, 2, -100, number}, {scores});
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->arguments, (std::vector<std::int8_t>{-1, 0, 0, -1, -1, -1, -1}));
}

TEST(DeferredSplitTest, MatricesOfABatchAreItems) {
  const SplitRule rule{Kind::kLeading, 2, 30};
  const auto both =
      split(rule, {tensor({1, 40, 60, 60}), tensor({1, 40, 60, 60})}, {tensor({1, 40, 60, 60})});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->arguments, (std::vector<std::int8_t>{1, 1}));
  const auto shared = split(rule, {tensor({40, 60, 60}), tensor({60, 60})}, {tensor({40, 60, 60})});
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->arguments, (std::vector<std::int8_t>{0, -1}));
  EXPECT_FALSE(split(rule, {tensor({500, 500})}, {tensor({500, 500})}));
  EXPECT_FALSE(split(rule, {tensor({40, 60, 60}), tensor({1, 60, 60})}, {tensor({40, 60, 60})}));
}

TEST(DeferredSplitTest, WhatIsNotToBeCutIsAWholeVector) {
  const SplitRule rule{Kind::kLeading, 0, 20, 0b10};
  const auto cut = split(rule, {tensor({90000}), tensor({90000})}, {tensor({90000})});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->arguments, (std::vector<std::int8_t>{-1, 0}));
  EXPECT_FALSE(split(rule, {tensor({900, 90}), tensor({900, 90})}, {tensor({900, 90})}));
}

TEST(DeferredSplitTest, PlacesAreCutAndWhatIsReadThereIsWhole) {
  const SplitRule rule = rule_of("aten::take");
  const auto cut = split(rule, {tensor({9, 5}), tensor({1, 900, 500})}, {tensor({1, 900, 500})});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->arguments, (std::vector<std::int8_t>{-1, 1}));
  EXPECT_EQ(cut->results, (std::vector<std::int8_t>{1}));
  EXPECT_FALSE(split(rule, {tensor({9000, 500}), tensor({9})}, {tensor({9})}));
}

TEST(DeferredSplitTest, WhatIsFilledIsCutAlongAnotherDimension) {
  const auto rule = rule_of("aten::index_fill_", "int_Scalar");
  const auto cut = split(rule, {tensor({900, 500}), 1, tensor({30}), 2.0}, {});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->arguments, (std::vector<std::int8_t>{0, -1, -1, -1}));
  EXPECT_FALSE(split(rule, {tensor({90000}), 0, tensor({30}), 2.0}, {}));
}

TEST(DeferredSplitTest, SamplesOfABatchHaveOtherDimensions) {
  const SplitRule rule{Kind::kBatch, 2, 8};
  const at::Tensor images = tensor({1, 40, 90, 90}), samples = tensor({1, 40, 2});
  const auto channels = split(rule, {images, samples}, {tensor({1, 40, 9, 9})});
  ASSERT_TRUE(channels);
  EXPECT_EQ(channels->arguments, (std::vector<std::int8_t>{1, 1}));
  EXPECT_EQ(channels->results, (std::vector<std::int8_t>{1}));
  EXPECT_GT(channels->blocks(), 1);
  EXPECT_FALSE(split(rule, {images, tensor({1, 1, 2})}, {tensor({1, 40, 9, 9})}));
  EXPECT_FALSE(split(rule, {tensor({1, 1, 900, 900}), tensor({1, 1, 2})}, {tensor({1, 1, 9, 9})}));
}

TEST(DeferredSplitTest, RowsOfAProductShareTheOtherFactor) {
  const SplitRule rule{Kind::kRows, 0, 1, 0b101};
  const at::Tensor left = tensor({9000, 64}), right = tensor({64, 48}), one = tensor({1});
  const auto rows = split(rule, {left, right, tensor({9000, 1}), one}, {tensor({9000, 48})});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->arguments, (std::vector<std::int8_t>{0, -1, 0, -1}));
  const auto scaled = split(rule, {left, right, one, one}, {tensor({9000, 48})});
  ASSERT_TRUE(scaled);
  EXPECT_EQ(scaled->arguments, (std::vector<std::int8_t>{0, -1, -1, -1}));
  EXPECT_FALSE(split(rule, {left, right, tensor({90, 1}), one}, {tensor({9000, 48})}));
  c10::List<at::Tensor> factors({tensor({9000, 1})});
  EXPECT_FALSE(split(rule, {left, right, factors, one}, {tensor({9000, 48})}));
}

TEST(DeferredSplitTest, FewImagesAreCutWhereTheGridHasPlaces) {
  const SplitRule rule{Kind::kGrid, 1, 1};
  const auto cut =
      split(rule, {tensor({1, 3, 90, 90}), tensor({1, 300, 200, 2})}, {tensor({1, 3, 300, 200})});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->arguments, (std::vector<std::int8_t>{-1, 1}));
  EXPECT_EQ(cut->results, (std::vector<std::int8_t>{2}));
  EXPECT_GT(cut->blocks(), 1);
  EXPECT_FALSE(split(rule, {tensor({64, 3, 90, 90}), tensor({64, 300, 200, 2})},
                     {tensor({64, 3, 300, 200})}));
}

c10::IValue indices(const std::vector<at::Tensor>& given) {
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& each : given) {
    list.push_back(each.defined() ? std::optional(each.to(c10::kLong)) : std::nullopt);
  }
  return list;
}

TEST(DeferredSplitTest, IndicesAreCutWhereTheyComeFirst) {
  const SplitRule rule{Kind::kIndex, 0, 4};
  const at::Tensor self = tensor({700, 300, 50}), index = tensor({900, 1}), one = tensor({1, 40});
  const auto rows = split(rule, {self, indices({index, one})}, {tensor({900, 40, 50})});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->items, 900);
  EXPECT_EQ(rows->arguments, (std::vector<std::int8_t>{-1, 0}));
  const auto columns = split(rule, {self, indices({{}, tensor({900})})}, {tensor({700, 900, 50})});
  ASSERT_TRUE(columns);
  EXPECT_EQ(columns->items, 700);
  EXPECT_EQ(columns->arguments, (std::vector<std::int8_t>{0, -1}));
  const auto apart =
      split(rule, {self, indices({{}, tensor({900}), {}})}, {tensor({700, 900, 50})});
  ASSERT_TRUE(apart);
  const auto around =
      split(rule, {self, indices({tensor({900}), {}, tensor({900})})}, {tensor({900, 300})});
  ASSERT_TRUE(around);
  EXPECT_EQ(around->arguments, (std::vector<std::int8_t>{-1, 0}));
}

TEST(DeferredSplitTest, AResultThatIsAbsentIsLeftOut) {
  const auto cut = split({Kind::kLeading, 3, 30}, {tensor({8, 4, 90, 90})},
                         {tensor({8, 4, 90, 90}), at::Tensor()});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->results, (std::vector<std::int8_t>{0, -1}));
}

TEST(DeferredSplitTest, WhatIsWrittenTwiceIsNotCut) {
  const at::Tensor one = tensor({1}).expand({900, 500});
  EXPECT_FALSE(
      split_of({{{Kind::kPointwise, 0, 1}}}, {{tensor({900, 500}), one}}, {false, true}, {}));
  const SplitRule rule{Kind::kOthers, 2, 1};
  EXPECT_FALSE(split_of({{rule}}, {{tensor({900, 500}), one, 1}}, {false, true, false}, {}));
}

}  // namespace
}  // namespace loom::ops
