// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/recurrent/gate_sums.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::recurrent::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

template <class Bias>
void add_biases(const GateSums<Bias>& s) noexcept {
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t gate = 0; gate < s.gates; ++gate) {
      const simd::BFloat16* const from = s.from[row] + gate * s.from_stride;
      const Bias* const bias = s.bias + gate * s.bias_stride;
      float* const to = s.to[row] + gate * s.to_stride;
      for_vectors(
          s.units, LOOM_EACH {
            (void)chain;
            put(to, i, count, get(from, i, count, 0) + get(bias, i, count, 0));
          });
    }
  }
}

template void add_biases(const GateSums<float>&) noexcept;
template void add_biases(const GateSums<simd::BFloat16>&) noexcept;

}  // namespace loom::kernels::recurrent::LOOM_SIMD
