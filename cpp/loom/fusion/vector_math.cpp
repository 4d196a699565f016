// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/vector_math.h"

#include "loom/base/options.h"
#include "loom/fusion/simd_functions.h"

#include <algorithm>

namespace loom::fusion {
namespace {

SimdLevel widest() noexcept {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx512 && avx512_vector_function != nullptr) return SimdLevel::kAvx512;
  if (avx2 && avx2_vector_function != nullptr) return SimdLevel::kAvx2;
#endif
  return SimdLevel::kScalar;
}

SimdLevel allowed() {
  switch (options().simd) {
    case SimdLimit::kScalar:
      return SimdLevel::kScalar;
    case SimdLimit::kAvx2:
      return SimdLevel::kAvx2;
    case SimdLimit::kAvx512:
      break;
  }
  return SimdLevel::kAvx512;
}

}  // namespace

SimdLevel simd_level() noexcept {
  static const SimdLevel level = std::min(widest(), allowed());
  return level;
}

VectorFunction vector_function(Op op, Type type) noexcept {
  switch (simd_level()) {
    case SimdLevel::kAvx512:
      return avx512_vector_function(op, type);
    case SimdLevel::kAvx2:
      return avx2_vector_function(op, type);
    case SimdLevel::kScalar:
      break;
  }
  return nullptr;
}

}  // namespace loom::fusion
