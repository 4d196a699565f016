// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/program.h"

#include "loom/fusion/freed.h"

#include <gtest/gtest.h>

#include "support/fused.h"
#include "support/program_fixture.h"
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace loom::fusion {
namespace {

using testing::binary;
using testing::FusedTensor;
using testing::row_sum;

class ProgramTest : public testing::ProgramFixture {
 protected:
  bool add(FusedTensor& to, FusedTensor& a, FusedTensor& b) {
    return program_.append(binary(Op::kAdd, to.access(), a.access(), b.access()));
  }

  FusedTensor a_{{4, 8}, 1}, b_{{4, 8}, 2}, c_{{4, 8}}, d_{{4, 8}}, row_{{8}}, rows_{{4, 1}};
};

TEST_F(ProgramTest, AResultIsNotLoadedAgain) {
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(d_, c_, a_));
  const Body& body = close();
  EXPECT_EQ(body.inputs.size(), 2u);
  EXPECT_EQ(body.instructions.size(), 2u);
  EXPECT_EQ(body.outputs.size(), 2u);
}

TEST_F(ProgramTest, RowsOfAFewVectorsHaveAValueForEach) {
  FusedTensor planes{{30, 7, 7}}, scales{{30, 1, 1}}, to{{30, 7, 7}};
  ASSERT_TRUE(add(to, planes, scales));
  close();
  EXPECT_FALSE(plan_.gathers());
  EXPECT_EQ(plan_.rows(), 30);
  EXPECT_EQ(plan_.columns(), 49);
}

TEST_F(ProgramTest, AResultWhoseMemoryWasFreedIsNotStored) {
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(d_, c_, a_));
  note_freed(c_.access().allocation);
  EXPECT_EQ(close().outputs.size(), 1u);
}

TEST_F(ProgramTest, WhatWasFreedBeforeIsStored) {
  note_freed(c_.access().allocation);
  ASSERT_TRUE(add(c_, a_, b_));
  EXPECT_EQ(close().outputs.size(), 1u);
}

TEST_F(ProgramTest, MemoryThatIsUsedAgainBelongsToTheLaterResult) {
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(d_, c_, a_));
  note_freed(c_.access().allocation);
  ASSERT_TRUE(add(c_, d_, b_));  // another tensor at the same place
  const Body& body = close();
  ASSERT_EQ(body.outputs.size(), 2u);
  EXPECT_EQ(body.outputs[1].value, body.value_count() - 1);
}

TEST_F(ProgramTest, AnOverwrittenResultIsNotStored) {
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(add(c_, c_, b_));
  EXPECT_EQ(close().outputs.size(), 1u);
}

TEST_F(ProgramTest, NobodyNeedsWhatOnlyDeadResultsUse) {
  ASSERT_TRUE(add(c_, a_, b_));
  note_freed(c_.access().allocation);
  EXPECT_TRUE(close().outputs.empty());
}

TEST_F(ProgramTest, WritingIntoAnOperandInPlaceIsPartOfIt) {
  ASSERT_TRUE(add(a_, a_, b_));
  ASSERT_TRUE(add(c_, a_, b_));
  const Body& body = close();
  EXPECT_EQ(body.inputs.size(), 2u);
  EXPECT_EQ(body.outputs.size(), 2u);
}

TEST_F(ProgramTest, OtherSizesDoNotFitIn) {
  FusedTensor other({5, 8}), result({5, 8});
  ASSERT_TRUE(add(c_, a_, b_));
  EXPECT_FALSE(add(result, other, other));
}

TEST_F(ProgramTest, ARefusedOperatorChangesNothing) {
  FusedTensor result({5, 8});
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_FALSE(add(result, result, result));
  EXPECT_EQ(program_.operators().size(), 1u);
  EXPECT_EQ(program_.loads().size(), 2u);
}

TEST_F(ProgramTest, AnOperandThatOverlapsWithAResultInPartDoesNotFitIn) {
  ASSERT_TRUE(add(c_, a_, b_));
  TensorAccess shifted = c_.access();
  shifted.data += sizeof(float) * 8;
  const std::int64_t sizes[] = {1, 8};
  shifted.sizes = sizes;
  shifted.numel = 8;
  EXPECT_FALSE(program_.append(binary(Op::kAdd, d_.access(), a_.access(), shifted)));
}

// Columns `first` and later of the tensor, as many as are given.
TensorAccess columns_of(FusedTensor& tensor, std::int64_t first,
                        std::span<const std::int64_t> sizes,
                        std::span<const std::int64_t> strides) {
  TensorAccess access = tensor.access();
  access.data += static_cast<std::int64_t>(sizeof(float)) * first;
  access.sizes = sizes;
  access.strides = strides;
  access.numel = sizes[0] * sizes[1];
  access.contiguous = false;
  return access;
}

TEST_F(ProgramTest, HalvesOfEachRowAreWrittenSideBySide) {
  const std::int64_t sizes[] = {4, 4}, strides[] = {8, 1};
  const auto half = [&](FusedTensor& of, std::int64_t first) {
    return columns_of(of, first, sizes, strides);
  };
  ASSERT_TRUE(program_.append(binary(Op::kAdd, half(c_, 0), half(a_, 0), half(b_, 0))));
  ASSERT_TRUE(program_.append(binary(Op::kAdd, half(c_, 4), half(c_, 0), half(b_, 4))));
  EXPECT_EQ(program_.stores().size(), 2u);
  // One column of the second half is among those of the first operand here.
  EXPECT_FALSE(program_.append(binary(Op::kAdd, half(d_, 0), half(c_, 3), half(b_, 0))));
  EXPECT_FALSE(program_.append(binary(Op::kAdd, half(c_, 1), half(a_, 0), half(b_, 0))));
}

TEST_F(ProgramTest, ShiftedColumnsThatRunIntoTheNextRowOverlap) {
  const std::int64_t sizes[] = {3, 4}, strides[] = {8, 1};
  const auto four = [&](std::int64_t first) { return columns_of(c_, first, sizes, strides); };
  ASSERT_TRUE(
      program_.append(binary(Op::kAdd, four(0), columns_of(a_, 0, sizes, strides), four(0))));
  EXPECT_TRUE(
      program_.append(binary(Op::kAdd, columns_of(d_, 0, sizes, strides), four(4), four(0))));
  EXPECT_FALSE(
      program_.append(binary(Op::kAdd, columns_of(d_, 4, sizes, strides), four(5), four(0))));
  EXPECT_TRUE(
      program_.append(binary(Op::kAdd, columns_of(d_, 4, sizes, strides), four(12), four(0))));
}

TEST_F(ProgramTest, AResultOverABroadcastOperandDoesNotFitIn) {
  ASSERT_TRUE(program_.append(binary(Op::kAdd, c_.access(), a_.access(), row_.access())));
  TensorAccess over_row = d_.access();
  over_row.data = row_.access().data;
  EXPECT_FALSE(program_.append(binary(Op::kAdd, over_row, a_.access(), b_.access())));
}

TEST_F(ProgramTest, AResultWithElementsThatAreTheSameOneDoesNotFitIn) {
  TensorAccess windows = c_.access();
  const std::int64_t strides[] = {4, 1};
  windows.strides = strides;
  windows.contiguous = false;
  EXPECT_FALSE(program_.append(binary(Op::kAdd, windows, a_.access(), b_.access())));
}

TEST_F(ProgramTest, TransposedResultsOfTheSameShapeAreOneSpace) {
  const std::int64_t sizes[] = {4, 8}, strides[] = {1, 4};
  const auto transposed = [&](FusedTensor& tensor) {
    TensorAccess access = tensor.access();
    access.sizes = sizes;
    access.strides = strides;
    access.contiguous = false;
    return access;
  };
  ASSERT_TRUE(program_.append(binary(Op::kAdd, transposed(c_), transposed(a_), transposed(b_))));
  ASSERT_TRUE(program_.append(binary(Op::kAdd, transposed(d_), transposed(c_), transposed(b_))));
  close();
  EXPECT_EQ(plan_.rows(), 1);
  EXPECT_EQ(plan_.columns(), 32);
  EXPECT_FALSE(plan_.gathers());
}

TEST_F(ProgramTest, WhatTakesMemoryAsItLiesFitsIntoAnySpaceOfTheSameElements) {
  constexpr std::array<std::int64_t, 2> kStrides{1, 4};
  constexpr std::array<std::int64_t, 1> kCount{32}, kStep{1};
  const auto turned = [&](FusedTensor& tensor) {
    TensorAccess access = tensor.access();
    access.strides = kStrides;
    access.contiguous = false;
    return access;
  };
  const auto flat = [&](FusedTensor& tensor) {
    TensorAccess access = tensor.access();
    access.sizes = kCount;
    access.strides = kStep;
    return access;
  };
  ASSERT_TRUE(program_.append(binary(Op::kAdd, turned(c_), turned(a_), turned(b_))));
  ASSERT_TRUE(program_.append(binary(Op::kMul, flat(d_), flat(c_), flat(a_))));
  const Body& body = close();
  check_valid(body);
  EXPECT_EQ(body.inputs.size(), 2u);
  EXPECT_EQ(plan_.columns(), 32);
  FusedTensor short_one({8});
  EXPECT_FALSE(program_.append(binary(Op::kMul, flat(d_), flat(c_), short_one.access())));
}

TEST_F(ProgramTest, ABroadcastRowIsReadInPlace) {
  FusedTensor wide({4, 128}), result({4, 128}), row({128}), column({4, 1});
  ASSERT_TRUE(program_.append(binary(Op::kAdd, result.access(), wide.access(), row.access())));
  ASSERT_TRUE(program_.append(binary(Op::kMul, wide.access(), result.access(), column.access())));
  close();
  EXPECT_EQ(plan_.rows(), 4);
  EXPECT_EQ(plan_.columns(), 128);
  EXPECT_FALSE(plan_.gathers());
  EXPECT_TRUE(plan_.body().inputs[2].uniform);
}

TEST_F(ProgramTest, AReductionAndWhatFollowsItShareAProgram) {
  ASSERT_TRUE(add(c_, a_, b_));
  ASSERT_TRUE(program_.append(row_sum(rows_.access(), c_.access())));
  ASSERT_TRUE(add(rows_, rows_, rows_));  // one element a row
  ASSERT_TRUE(program_.append(binary(Op::kDiv, d_.access(), c_.access(), rows_.access())));
  const Body& body = close();
  check_valid(body);
  EXPECT_EQ(analyse(body).phases, 2);
  EXPECT_TRUE(plan_.whole_rows());
  EXPECT_EQ(plan_.columns(), 8);
  EXPECT_EQ(body.outputs.size(), 3u);
}

TEST_F(ProgramTest, AnExpressionMayReduceAndStoreElements) {
  Expression share("share");
  share.reduce_over_last(1);
  const Node a = share.load(a_.access());
  const Node sum = share.apply(Op::kSum, a);
  share.store(share.apply(Op::kDiv, a, sum), c_.access());
  share.store(sum, rows_.access());
  ASSERT_TRUE(program_.append(share));
  const Body& body = close();
  check_valid(body);
  EXPECT_EQ(analyse(body).phases, 2);
  ASSERT_EQ(body.outputs.size(), 2u);
  EXPECT_FALSE(body.outputs[0].uniform);
  EXPECT_TRUE(body.outputs[1].uniform);
}

TEST_F(ProgramTest, AnExpressionMayBeAsLargeAsAProgram) {
  Expression sum("sum");
  std::vector<FusedTensor> operands;
  for (std::size_t i = 0; i < Body::kMaxInputs; ++i) operands.emplace_back(FusedTensor({4, 8}, 1));
  Node all = sum.load(a_.access());
  for (std::size_t i = 1; i < operands.size(); ++i) {
    all = sum.apply(Op::kAdd, all, sum.load(operands[i].access()));
  }
  sum.store(all, c_.access());
  EXPECT_TRUE(sum.fits());
  EXPECT_TRUE(program_.append(sum));
}

// As in layer norm after layer norm, when the first one's result is still open.
TEST_F(ProgramTest, AReductionMayComeAfterAColumnAndTakeItsMemory) {
  FusedTensor mean({4, 1});
  ASSERT_TRUE(program_.append(binary(Op::kMul, c_.access(), a_.access(), rows_.access())));
  note_freed(rows_.access().allocation);
  ASSERT_TRUE(program_.append(row_sum(mean.access(), b_.access())));
  ASSERT_TRUE(add(rows_, mean, mean));  // another tensor at the column's place
  ASSERT_TRUE(program_.append(binary(Op::kMul, d_.access(), b_.access(), rows_.access())));
  const Body& body = close();
  check_valid(body);
  ASSERT_EQ(body.inputs.size(), 3u);
  EXPECT_TRUE(body.inputs[1].uniform);
  ASSERT_EQ(body.outputs.size(), 4u);
  EXPECT_FALSE(body.outputs[0].uniform);
  EXPECT_TRUE(body.outputs[2].uniform);
}

TEST_F(ProgramTest, RowsOfOneElementAreNotReduced) {
  FusedTensor in({4, 1}, 1), sum({4, 1});
  EXPECT_FALSE(program_.append(row_sum(sum.access(), in.access())));
}

TEST_F(ProgramTest, WhatBecomesUniformWithRowsIsNotReduced) {
  ASSERT_TRUE(program_.append(binary(Op::kAdd, c_.access(), rows_.access(), rows_.access())));
  EXPECT_FALSE(program_.append(row_sum(FusedTensor({4, 1}).access(), c_.access())));
  ASSERT_TRUE(add(d_, c_, a_));
  const Body& body = close();
  check_valid(body);
  EXPECT_EQ(body.outputs.size(), 2u);
}

TEST_F(ProgramTest, RowsOfOneLengthDoNotMixWithRowsOfAnother) {
  ASSERT_TRUE(program_.append(row_sum(rows_.access(), a_.access())));
  FusedTensor one({1, 1});
  Expression all("sum");
  all.reduce_over_last(2);
  all.store(all.apply(Op::kSum, all.load(a_.access())), one.access());
  EXPECT_FALSE(program_.append(all));
}

TEST_F(ProgramTest, WhatIsStoredOnlyIsRoundedByItsStore) {
  const auto append_half = [&](DType dtype, bool is_read) {
    program_.reset();
    TensorAccess half = c_.access();
    half.dtype = dtype;
    Expression sum("add");
    const Node value = sum.load(a_.access());
    const Node rounded = sum.to(dtype, sum.apply(Op::kAdd, value, value));
    sum.store(rounded, half);
    if (is_read) sum.store(sum.apply(Op::kMul, rounded, value), d_.access());
    return program_.append(sum);
  };
  for (const DType dtype : {DType::kHalf, DType::kBFloat16}) {
    ASSERT_TRUE(append_half(dtype, false));
    EXPECT_EQ(close().instructions.size(), 1u);
    ASSERT_TRUE(append_half(dtype, true));
    const Body& body = close();
    check_valid(body);
    ASSERT_EQ(body.instructions.size(), 3u);
    EXPECT_EQ(body.outputs[0].value, body.instructions[2].a);
  }
}

TEST_F(ProgramTest, ItIsFullAtSomePoint) {
  int appended = 0;
  while (add(c_, c_, b_)) ASSERT_LT(++appended, 200);
  EXPECT_GE(appended, 40);
  const Body& body = close();
  check_valid(body);
  EXPECT_EQ(body.outputs.size(), 1u);
}

TEST_F(ProgramTest, EqualNumbersAreOneParameter) {
  for (int i = 0; i < 3; ++i) {
    Expression scale("mul");
    const Node value = scale.load(a_.access());
    scale.store(scale.apply(Op::kMul, value, scale.number(0.5F)), a_.access());
    ASSERT_TRUE(program_.append(scale));
  }
  EXPECT_EQ(close().params.size(), 1u);
}

}  // namespace
}  // namespace loom::fusion
