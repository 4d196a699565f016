// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/layer_norm.h"

#include "loom/kernels/norm/wide_row.h"
#include "loom/simd/float_loops.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

template <class T>
void layer_norm_row(T* to, const T* from, const float* weight, const float* bias, float* scratch,
                    std::int64_t columns, double eps, float* statistics) noexcept {
  const auto length = static_cast<float>(columns);
  Sum sum;
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = get(from, i, count, 0);
        sum.chains[chain] += value;
        store(scratch + i, value);
      });
  float mean = sum.total() / length;
  Floats means = all(mean);
  Sum squares;
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = get(scratch, i, count, mean) - means;
        squares.chains[chain] += value * value;
      });
  double variance = static_cast<double>(squares.total() / length);
  if (needs_wide_statistics(variance, eps)) [[unlikely]] {
    const WideStatistics wide = wide_statistics(scratch, 1, columns);
    if (__builtin_isfinite(wide.mean)) {
      mean = static_cast<float>(wide.mean);
      means = all(mean);
      variance = wide.squares / static_cast<double>(columns);
    }
  }
  const float rstd = static_cast<float>(1 / __builtin_sqrt(variance + eps));
  const Floats factor = all(rstd);
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        const Floats value = (load(scratch + i) - means) * factor;
        put(to, i, count, value * get(weight, i, count, 0) + get(bias, i, count, 0));
      });
  statistics[0] = mean;
  statistics[1] = rstd;
}

template <class T>
void layer_norm_gradient_row(T* to, const T* grad, const T* from, const float* weight,
                             std::int64_t columns, const float* statistics, float* weight_gradient,
                             float* bias_gradient) noexcept {
  const Floats mean = all(statistics[0]), rstd = all(statistics[1]);
  Sum plain, scaled;
  if (weight_gradient != nullptr) {
    for_vectors(
        columns, LOOM_EACH {
          const Floats slope = get(grad, i, count, 0);
          const Floats normal = (get(from, i, count, 0) - mean) * rstd;
          const Floats share = slope * normal;
          put(weight_gradient, i, count, get(weight_gradient, i, count, 0) + share);
          put(bias_gradient, i, count, get(bias_gradient, i, count, 0) + slope);
          const Floats factor = get(weight, i, count, 0);
          plain.chains[chain] += slope * factor;
          scaled.chains[chain] += share * factor;
        });
  } else {
    for_vectors(
        columns, LOOM_EACH {
          const Floats value = get(grad, i, count, 0) * get(weight, i, count, 0);
          plain.chains[chain] += value;
          scaled.chains[chain] += value * ((get(from, i, count, 0) - mean) * rstd);
        });
  }
  if (to == nullptr) return;
  const auto length = static_cast<float>(columns);
  const Floats offset = all(plain.total() / length), slope = all(scaled.total() / length);
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        const Floats value = get(grad, i, count, 0) * get(weight, i, count, 0);
        const Floats normal = (get(from, i, count, 0) - mean) * rstd;
        put(to, i, count, (value - offset - normal * slope) * rstd);
      });
}

#define LOOM_INSTANTIATE(T)                                                                    \
  template void layer_norm_row(T*, const T*, const float*, const float*, float*, std::int64_t, \
                               double, float*) noexcept;                                       \
  template void layer_norm_gradient_row(T*, const T*, const T*, const float*, std::int64_t,    \
                                        const float*, float*, float*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
