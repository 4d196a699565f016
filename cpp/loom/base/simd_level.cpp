// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/simd_level.h"

#include "loom/base/options.h"

#include <algorithm>

namespace loom {

const char* to_string(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::kAvx512:
      return "AVX-512";
    case SimdLevel::kAvx2:
      return "AVX2";
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
  if (avx2) return avx512 ? SimdLevel::kAvx512 : SimdLevel::kAvx2;
#endif
  return SimdLevel::kScalar;
}

SimdLevel simd_level() noexcept {
  static const SimdLevel level = std::min(processor_simd_level(), options().simd);
  return level;
}

}  // namespace loom
