// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/optim/adam.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::optim::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

[[gnu::always_inline]] inline Floats root_of(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int i = 0; i < kLanes; ++i) lanes[i] = __builtin_sqrtf(lanes[i]);
  return load(lanes);
}

}  // namespace

void adam(const AdamUpdate& u, std::int64_t all_elements) noexcept {
  const float sign = u.maximize ? -1.0F : 1.0F;
  for_vectors(
      all_elements, LOOM_EACH {
        (void)chain;
        const Floats parameter = get(u.parameter, i, count, 0);
        Floats gradient = get(u.gradient, i, count, 0) * sign;
        if (u.gradient_decay != 0) gradient += parameter * u.gradient_decay;  // not inf * 0
        const Floats before = get(u.mean, i, count, 0);
        const Floats way = gradient - before;
        // From the nearer end, as lerp does.
        const Floats mean =
            u.mean_weight < 0.5F ? before + way * u.mean_weight : gradient - way * u.beta1;
        const Floats square =
            get(u.square, i, count, 0) * u.beta2 + gradient * gradient * u.square_weight;
        const Floats divisor = root_of(square) * u.root_factor + u.eps;
        put(u.mean, i, count, mean);
        put(u.square, i, count, square);
        put(u.parameter, i, count, parameter * u.decay - u.step_size * mean / divisor);
      });
}

}  // namespace loom::kernels::optim::LOOM_SIMD
