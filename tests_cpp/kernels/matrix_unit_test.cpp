// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/matrix_unit.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include <cstdlib>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace loom::kernels::gemm {
namespace {

using testing::finish;

TEST(MatrixUnitTest, IsThatOfTheLastInstructionSet) {
  EXPECT_TRUE(allows_matrix_unit(SimdLevel::kAmx, nullptr));
  for (const SimdLevel level :
       {SimdLevel::kScalar, SimdLevel::kAvx2, SimdLevel::kAvx512, SimdLevel::kAvx512Bf16}) {
    EXPECT_FALSE(allows_matrix_unit(level, nullptr)) << to_string(level);
    EXPECT_FALSE(allows_matrix_unit(level, "AVX512_CORE_AMX")) << to_string(level);
  }
}

TEST(MatrixUnitTest, OneDnnMayBeToldNotToUseIt) {
  for (const char* isa : {"SSE41", "AVX2", "avx2_vnni_2", "AVX512_CORE", "AVX512_CORE_BF16",
                          "avx512_core_fp16", "AVX10_1_512"}) {
    EXPECT_FALSE(allows_matrix_unit(SimdLevel::kAmx, isa)) << isa;
  }
  for (const char* isa : {"AVX512_CORE_AMX", "avx512_core_amx_fp16", "AVX10_1_512_AMX", "DEFAULT",
                          "ALL", "nonsense", ""}) {
    EXPECT_TRUE(allows_matrix_unit(SimdLevel::kAmx, isa)) << isa;
  }
}

// Each in a process of its own, since the answer is kept.
class MatrixUnitDeathTest : public testing::ChildTest {
 protected:
  static void forget_environment() {
    for (const char* name : {"LOOM_SIMD", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) unsetenv(name);
  }
  static auto narrowed_by(const char* name, const char* value) {
    return [=] {
      forget_environment();
      setenv(name, value, 1);
      EXPECT_FALSE(bfloat16_is_far_faster());
    };
  }
  /// Whether tiles may be used, once that was asked for.
  [[nodiscard]] static bool is_permitted() {
#if defined(__x86_64__) && defined(__linux__)
    unsigned long states = 0;
    return syscall(SYS_arch_prctl, 0x1022, &states) == 0 && (states >> 18 & 1) != 0;
#else
    return false;
#endif
  }
};

TEST_F(MatrixUnitDeathTest, TheEnvironmentNarrowsIt) {
  const auto done = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(finish(narrowed_by("LOOM_SIMD", "avx512_bf16")), done, "");
  EXPECT_EXIT(finish(narrowed_by("LOOM_SIMD", "avx2")), done, "");
  EXPECT_EXIT(finish(narrowed_by("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")), done, "");
  EXPECT_EXIT(finish(narrowed_by("DNNL_MAX_CPU_ISA", "AVX2")), done, "");
}

TEST_F(MatrixUnitDeathTest, IsThereWhereProcessorAndSystemHaveIt) {
  const auto as_the_system = [] {
    forget_environment();
    const bool answer = bfloat16_is_far_faster();
    EXPECT_EQ(answer, processor_simd_level() == SimdLevel::kAmx && is_permitted());
  };
  EXPECT_EXIT(finish(as_the_system), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom::kernels::gemm
