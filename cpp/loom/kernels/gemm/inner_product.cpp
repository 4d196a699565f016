// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/inner_product.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

template <class T>
double inner_product(const T* a, const T* b, std::int64_t all_elements) noexcept {
  double all_of = 0;
  for (std::int64_t begin = 0; begin < all_elements; begin += kElementsOfSum) {
    const std::int64_t left = all_elements - begin;
    Sum sum;
    for_vectors(
        left < kElementsOfSum ? left : kElementsOfSum, LOOM_EACH {
          sum.chains[chain] += get(a, begin + i, count, 0) * get(b, begin + i, count, 0);
        });
    all_of += sum.total();
  }
  return all_of;
}

template double inner_product(const float*, const float*, std::int64_t) noexcept;
template double inner_product(const simd::BFloat16*, const simd::BFloat16*, std::int64_t) noexcept;
template double inner_product(const simd::Half*, const simd::Half*, std::int64_t) noexcept;

}  // namespace loom::kernels::gemm::LOOM_SIMD
