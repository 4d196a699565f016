// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/simd_level.h"

#include "loom/base/options.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace loom {
#if defined(__x86_64__)
namespace {

// Not every compiler knows AMX by name. The system has to save tiles for it to be of use.
bool has_amx_bfloat16() noexcept {
  constexpr unsigned kBFloat16 = 1U << 22, kTiles = 1U << 24, kSavesStates = 1U << 27;
  constexpr unsigned kTileStates = 1U << 17 | 1U << 18;  // of XCR0
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSavesStates) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBFloat16) == 0 || (d & kTiles) == 0) {
    return false;
  }
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileStates) == kTileStates;
}

}  // namespace
#endif

const char* to_string(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::kAmx:
      return "AMX";
    case SimdLevel::kAvx512Bf16:
      return "AVX-512 with BF16";
    case SimdLevel::kAvx512:
      return "AVX-512";
    case SimdLevel::kAvx2:
      return "AVX2";
    case SimdLevel::kNeon:
      return "NEON";
    case SimdLevel::kScalar:
      break;
  }
  return "scalar";
}

SimdLevel processor_simd_level() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx2) return SimdLevel::kScalar;
  if (!avx512) return SimdLevel::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vbmi") ||
      !__builtin_cpu_supports("avx512vnni")) {
    return SimdLevel::kAvx512;
  }
  return has_amx_bfloat16() ? SimdLevel::kAmx : SimdLevel::kAvx512Bf16;
#elif defined(__aarch64__)
  return SimdLevel::kNeon;
#else
  return SimdLevel::kScalar;
#endif
}

bool processor_has(SimdLevel level) noexcept {
  const SimdLevel widest = processor_simd_level();
  const bool neon = level == SimdLevel::kNeon;
  return level == SimdLevel::kScalar || (level <= widest && neon == (widest == SimdLevel::kNeon));
}

SimdLevel simd_level() noexcept {
  static const SimdLevel level = [] {
    const SimdLevel narrowed = std::min(processor_simd_level(), options().simd);
    return processor_has(narrowed) ? narrowed : SimdLevel::kScalar;
  }();
  return level;
}

}  // namespace loom
