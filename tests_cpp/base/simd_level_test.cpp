// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/simd_level.h"

#include "loom/base/options.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace loom {
namespace {

TEST(SimdLevelTest, LevelsHaveNames) {
  EXPECT_STREQ(to_string(SimdLevel::kScalar), "scalar");
  EXPECT_STREQ(to_string(SimdLevel::kAvx2), "AVX2");
  EXPECT_STREQ(to_string(SimdLevel::kAvx512), "AVX-512");
}

TEST(SimdLevelTest, TheOptionLowersTheProcessors) {
  EXPECT_EQ(simd_level(), std::min(processor_simd_level(), options().simd));
}

TEST(SimdLevelTest, TheProcessorRunsWhatItsLevelMeans) {
#if defined(__x86_64__)
  const SimdLevel level = processor_simd_level();
  EXPECT_EQ(level >= SimdLevel::kAvx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  if (level == SimdLevel::kAvx512) {
    EXPECT_TRUE(__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"));
  }
#else
  EXPECT_EQ(processor_simd_level(), SimdLevel::kScalar);
#endif
}

}  // namespace
}  // namespace loom
