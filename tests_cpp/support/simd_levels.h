// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tests of kernels that there are several versions of: each is run, whatever LOOM_SIMD says.

#include "loom/base/simd_level.h"

#include <gtest/gtest.h>

#include <string>

namespace loom::testing {

/// A test for each instruction set that the processor has; the others are skipped.
class SimdTest : public ::testing::TestWithParam<SimdLevel> {
 protected:
  void SetUp() override {
    if (!processor_has(GetParam())) GTEST_SKIP() << "the processor has no such instructions";
  }
};

inline std::string simd_name(const ::testing::TestParamInfo<SimdLevel>& info) {
  switch (info.param) {
    case SimdLevel::kAmx:
      return "Amx";
    case SimdLevel::kAvx512Bf16:
      return "Avx512Bf16";
    case SimdLevel::kAvx512:
      return "Avx512";
    case SimdLevel::kAvx2:
      return "Avx2";
    case SimdLevel::kNeon:
      return "Neon";
    case SimdLevel::kScalar:
      break;
  }
  return "Scalar";
}

/// The instruction sets that kernels are compiled for in this build.
inline constexpr SimdLevel kSimdLevels[] = {
    SimdLevel::kScalar,
#if defined(__x86_64__)
    SimdLevel::kAvx2,
    SimdLevel::kAvx512,
#elif defined(__aarch64__)
    SimdLevel::kNeon,
#endif
};

#define LOOM_TEST_SIMD_LEVELS(suite)                                                       \
  INSTANTIATE_TEST_SUITE_P(Simd, suite, ::testing::ValuesIn(::loom::testing::kSimdLevels), \
                           ::loom::testing::simd_name)

/// The same of kernels with a single version.
#define LOOM_TEST_SIMD_LEVEL(suite, level) \
  INSTANTIATE_TEST_SUITE_P(Simd, suite, ::testing::Values(level), ::loom::testing::simd_name)

}  // namespace loom::testing
