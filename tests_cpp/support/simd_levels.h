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
    if (GetParam() > processor_simd_level())
      GTEST_SKIP() << "the processor has no such instructions";
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
    case SimdLevel::kScalar:
      break;
  }
  return "Scalar";
}

#define LOOM_TEST_SIMD_LEVELS(suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(Simd, suite,                                                            \
                           ::testing::Values(::loom::SimdLevel::kScalar, ::loom::SimdLevel::kAvx2, \
                                             ::loom::SimdLevel::kAvx512),                          \
                           ::loom::testing::simd_name)

/// The same of kernels with a single version.
#define LOOM_TEST_SIMD_LEVEL(suite, level) \
  INSTANTIATE_TEST_SUITE_P(Simd, suite, ::testing::Values(level), ::loom::testing::simd_name)

}  // namespace loom::testing
