// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/simd_level.h"

#include "loom/base/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

namespace loom {
namespace {

TEST(SimdLevelTest, LevelsHaveNames) {
  EXPECT_STREQ(to_string(SimdLevel::kScalar), "scalar");
  EXPECT_STREQ(to_string(SimdLevel::kNeon), "NEON");
  EXPECT_STREQ(to_string(SimdLevel::kAvx2), "AVX2");
  EXPECT_STREQ(to_string(SimdLevel::kAvx512), "AVX-512");
  EXPECT_STREQ(to_string(SimdLevel::kAvx512Bf16), "AVX-512 with BF16");
  EXPECT_STREQ(to_string(SimdLevel::kAmx), "AMX");
}

TEST(SimdLevelTest, TheOptionLowersTheProcessors) {
  EXPECT_TRUE(processor_has(simd_level()));
  EXPECT_LE(simd_level(), options().simd);
  if (processor_has(options().simd)) {
    EXPECT_EQ(simd_level(), options().simd);
  }
  if (options().simd == SimdLevel::kAmx) {
    EXPECT_EQ(simd_level(), processor_simd_level());
  }
}

TEST(SimdLevelTest, AProcessorHasItsWidestSetAndNoneOfAnotherProcessor) {
  EXPECT_TRUE(processor_has(SimdLevel::kScalar));
  EXPECT_TRUE(processor_has(processor_simd_level()));
  EXPECT_FALSE(processor_has(SimdLevel::kNeon) && processor_has(SimdLevel::kAvx2));
  EXPECT_TRUE(processor_has(SimdLevel::kAvx2) || !processor_has(SimdLevel::kAvx512));
}

TEST(SimdLevelTest, LevelsBeyondAvx512HaveItsVectors) {
  EXPECT_EQ(vectors_of(SimdLevel::kScalar), SimdLevel::kScalar);
  EXPECT_EQ(vectors_of(SimdLevel::kAvx2), SimdLevel::kAvx2);
  for (const SimdLevel level : {SimdLevel::kAvx512, SimdLevel::kAvx512Bf16, SimdLevel::kAmx}) {
    EXPECT_EQ(vectors_of(level), SimdLevel::kAvx512);
  }
}

#if defined(__linux__)
TEST(SimdLevelTest, TheSystemNamesTheProcessorsMatrixUnit) {
  std::ifstream file("/proc/cpuinfo");
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const bool named =
      all.find("amx_bf16") != std::string::npos && all.find("amx_tile") != std::string::npos;
  EXPECT_EQ(processor_simd_level() == SimdLevel::kAmx,
            named && processor_simd_level() >= SimdLevel::kAvx512Bf16);
}
#endif

TEST(SimdLevelTest, TheProcessorRunsWhatItsLevelMeans) {
#if defined(__x86_64__)
  const SimdLevel level = processor_simd_level();
  EXPECT_EQ(level >= SimdLevel::kAvx2,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  if (level >= SimdLevel::kAvx512) {
    EXPECT_TRUE(__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"));
    EXPECT_EQ(level >= SimdLevel::kAvx512Bf16, __builtin_cpu_supports("avx512bf16") != 0);
  }
#elif defined(__aarch64__)
  EXPECT_EQ(processor_simd_level(), SimdLevel::kNeon);
#else
  EXPECT_EQ(processor_simd_level(), SimdLevel::kScalar);
#endif
}

}  // namespace
}  // namespace loom
