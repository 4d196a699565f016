// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/vector_math.h"

#include "loom/fusion/simd_functions.h"

namespace loom::fusion {
SimdLevel vector_level() noexcept {
  switch (simd_level()) {
    case SimdLevel::kAvx512:
      if (avx512_vector_function != nullptr) return SimdLevel::kAvx512;
      [[fallthrough]];
    case SimdLevel::kAvx2:
      if (avx2_vector_function != nullptr) return SimdLevel::kAvx2;
      break;
    case SimdLevel::kScalar:
      break;
  }
  return SimdLevel::kScalar;
}

VectorFunction vector_function(Op op, Type type) noexcept {
  switch (vector_level()) {
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
