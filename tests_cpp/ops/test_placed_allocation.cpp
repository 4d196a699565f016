// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/device_output_scope.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <array>

namespace loom::ops {
namespace {

constexpr std::size_t kFloats = 64;

struct PlacedAllocationTest : testing::Test {
  alignas(64) std::array<float, kFloats> memory{};

  [[nodiscard]] bool is_here(const at::Tensor& tensor) const {
    return tensor.const_data_ptr() == memory.data();
  }
  static at::Tensor make(std::int64_t floats = kFloats) { return at::empty({floats}, at::kFloat); }
};

TEST_F(PlacedAllocationTest, IsTheFirstOfItsSize) {
  const PlacedAllocation placed(memory.data(), sizeof(memory));
  EXPECT_FALSE(is_here(make(kFloats / 2)));
  const at::Tensor first = make(), second = make();
  EXPECT_TRUE(is_here(first));
  EXPECT_FALSE(is_here(second));
}

TEST_F(PlacedAllocationTest, IsGivenAgainWhenATemporaryHasLeftIt) {
  const PlacedAllocation placed(memory.data(), sizeof(memory));
  at::Tensor temporary = make();
  ASSERT_TRUE(is_here(temporary));
  temporary.reset();
  EXPECT_TRUE(is_here(make()));
}

TEST_F(PlacedAllocationTest, EndsWithItsScopeAndMayBeNested) {
  at::Tensor survivor;
  {
    const PlacedAllocation outer(memory.data(), sizeof(memory));
    {
      const PlacedAllocation inner(nullptr, 0);
      EXPECT_FALSE(is_here(make()));
    }
    survivor = make();
    EXPECT_TRUE(is_here(survivor));
  }
  EXPECT_FALSE(is_here(make()));
  survivor.reset();
  EXPECT_FALSE(is_here(make()));
}

}  // namespace
}  // namespace loom::ops
