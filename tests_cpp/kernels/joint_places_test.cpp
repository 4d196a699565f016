// SPDX-License-Identifier: BSD-3-Clause
// Places along two dimensions as places along the one that they are together.
#include "loom/kernels/index/joint_places.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <cstdint>
#include <vector>

namespace loom::kernels::index {
namespace {

constexpr std::int64_t kRows = 7, kColumns = 11, kCount = 37;

class JointPlacesTest : public testing::SimdTest {
 protected:
  std::vector<std::int64_t> rows, columns;
  std::vector<std::int64_t> sizes{kCount}, strides{1};

  void SetUp() override {
    SimdTest::SetUp();
    for (std::int64_t i = 0; i < kCount; ++i) {
      rows.push_back(i * 5 % (2 * kRows) - kRows);
      columns.push_back(i * 3 % (2 * kColumns) - kColumns);
    }
  }
  template <class Index>
  bool add(const std::vector<Index>& index, std::int64_t items, std::int64_t step,
           std::int64_t begin, std::vector<std::int64_t>& to) const {
    const DimPlaces<Index> dim{index.data(),   sizes.data(),
                               strides.data(), static_cast<std::int64_t>(sizes.size()),
                               items,          step};
    return add_places<Index>.of(GetParam())(
        dim, begin, begin + static_cast<std::int64_t>(to.size()), to.data());
  }
  static std::int64_t wrapped(std::int64_t place, std::int64_t items) {
    return place < 0 ? place + items : place;
  }
};
LOOM_TEST_SIMD_LEVELS(JointPlacesTest);

TEST_P(JointPlacesTest, AreSumsOfSteps) {
  const std::vector<std::int32_t> narrow(columns.begin(), columns.end());
  for (const std::int64_t begin : {0, 3}) {
    std::vector<std::int64_t> places(kCount - begin);
    ASSERT_TRUE(add(rows, kRows, kColumns, begin, places));
    ASSERT_TRUE(add(narrow, kColumns, 1, begin, places));
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::size_t at = i + static_cast<std::size_t>(begin);
      EXPECT_EQ(places[i], wrapped(rows[at], kRows) * kColumns + wrapped(columns[at], kColumns));
    }
  }
}

TEST_P(JointPlacesTest, AreRepeatedWhereStridesAreZero) {
  sizes = {3, 4};
  strides = {1, 0};
  std::vector<std::int64_t> places(9);
  ASSERT_TRUE(add(rows, kRows, 1, 2, places));
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i], wrapped(rows[(i + 2) / 4], kRows)) << i;
  }
}

TEST_P(JointPlacesTest, AreRefusedOutsideOfTheDimension) {
  std::vector<std::int64_t> places(kCount);
  for (const std::int64_t wrong : {kRows, -kRows - 1}) {
    auto index = rows;
    index[20] = wrong;
    EXPECT_FALSE(add(index, kRows, 1, 0, places)) << wrong;
  }
}

}  // namespace
}  // namespace loom::kernels::index
