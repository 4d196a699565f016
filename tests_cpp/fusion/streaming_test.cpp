// SPDX-License-Identifier: BSD-3-Clause
// Which results of a program are written past the caches.
#include "loom/fusion/vector_math.h"

#include <gtest/gtest.h>

#include "support/program_fixture.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion {
namespace {

class StreamingTest : public testing::ProgramFixture {};

// More than the processor puts to whole lines at once are slower than through the caches.
TEST_F(StreamingTest, FewResultsOfBytesAreWrittenPastTheCaches) {
  const std::vector<std::int64_t> sizes{std::int64_t{1} << 24}, strides{1};
  const auto tensor = [&](int index, DType dtype) {
    auto* const data = reinterpret_cast<std::byte*>(std::uintptr_t(index + 1) << 32);
    return TensorAccess{.data = data,
                        .dtype = dtype,
                        .sizes = sizes,
                        .strides = strides,
                        .numel = sizes[0],
                        .contiguous = true,
                        .allocation = data};
  };
  const auto streams = [&](int results) {
    program_.reset();
    for (int i = 1; i <= results; ++i) {
      Expression greater("gt");
      const Node value = greater.load(tensor(0, DType::kFloat));
      greater.store(greater.apply(Op::kGt, value, greater.number(Type::kFloat, i)),
                    tensor(i, DType::kBool));
      EXPECT_TRUE(program_.append(greater));
    }
    return close().streaming;
  };
  EXPECT_TRUE(streams(1));
  EXPECT_TRUE(streams(4));
  EXPECT_FALSE(streams(5));
  program_.reset();
  for (int i = 1; i <= 5; ++i) {
    Expression square("square");
    const Node value = square.load(tensor(0, DType::kFloat));
    square.store(square.apply(Op::kMul, value, value), tensor(i, DType::kFloat));
    EXPECT_TRUE(program_.append(square));
  }
  EXPECT_EQ(close().streaming, vector_level() == SimdLevel::kAvx512) << "a vector is a line";
  program_.reset();
  for (int i = 1; i <= 8; ++i) {
    Expression one("fill");
    one.store(one.number(Type::kFloat, 1.0), tensor(i, DType::kBool));
    EXPECT_TRUE(program_.append(one));
  }
  EXPECT_TRUE(close().streaming) << "fills write whole lines";
}

TEST_F(StreamingTest, LongRowsThatBeginAnywhereAreWrittenPastTheCaches) {
  const auto close_rows = [&](std::int64_t columns, DType second) {
    program_.reset();
    const std::vector<std::int64_t> sizes{(std::int64_t{1} << 24) / columns, columns};
    const std::vector<std::int64_t> strides{columns, 1}, of_row{0, 1};
    const auto tensor = [&](int index, DType dtype, const std::vector<std::int64_t>& own) {
      auto* const data = reinterpret_cast<std::byte*>(std::uintptr_t(index + 1) << 32);
      return TensorAccess{.data = data,
                          .dtype = dtype,
                          .sizes = sizes,
                          .strides = own,
                          .numel = sizes[0] * columns,
                          .contiguous = own[0] != 0,
                          .allocation = data};
    };
    for (const int index : {2, 3}) {
      const DType dtype = index == 2 ? DType::kFloat : second;
      Expression add("add");
      const Node row = add.load(tensor(1, DType::kFloat, of_row));
      const Node sum = add.apply(Op::kAdd, add.load(tensor(0, DType::kFloat, strides)), row);
      add.store(add.to(dtype, sum), tensor(index, dtype, strides));
      EXPECT_TRUE(program_.append(add));
    }
    return close();
  };
  EXPECT_TRUE(close_rows(1024, DType::kFloat).streaming);
  EXPECT_TRUE(close_rows(1024, DType::kFloat).aligned);
  EXPECT_TRUE(close_rows(1001, DType::kFloat).streaming);
  EXPECT_FALSE(close_rows(1001, DType::kFloat).aligned);
  EXPECT_FALSE(close_rows(1001, DType::kBFloat16).streaming) << "lines of two begin apart";
  EXPECT_FALSE(close_rows(101, DType::kFloat).streaming) << "little of a row is whole lines";
}

}  // namespace
}  // namespace loom::fusion
