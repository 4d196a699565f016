// SPDX-License-Identifier: BSD-3-Clause
#define LOOM_SIMD_AVX512
#include "loom/fusion/simd_functions.h"
#include "loom/fusion/vector_function_impl.h"

namespace loom::fusion {

VectorFunction avx512_vector_function(Op op, Type type) noexcept {
  return find_vector_function(op, type);
}

}  // namespace loom::fusion
