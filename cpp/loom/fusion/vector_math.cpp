// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/vector_math.h"

#include "loom/fusion/simd_functions.h"

namespace loom::fusion {
SimdLevel vector_level() noexcept {
  const SimdLevel level = simd_level();
  if (level >= SimdLevel::kAvx512 && avx512_vector_function != nullptr) return SimdLevel::kAvx512;
  if (level >= SimdLevel::kAvx2 && avx2_vector_function != nullptr) return SimdLevel::kAvx2;
  return SimdLevel::kScalar;
}

VectorFunction vector_function(Op op, Type type) noexcept {
  switch (vector_level()) {
    case SimdLevel::kAvx512:
      return avx512_vector_function(op, type);
    case SimdLevel::kAvx2:
      return avx2_vector_function(op, type);
    default:
      return nullptr;
  }
}

}  // namespace loom::fusion
