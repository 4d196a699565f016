// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/softmax.h"

#include "loom/simd/exponential.h"
#include "loom/simd/float_loops.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

// A NaN need not become the maximum: it is in the sum.
template <class T>
[[gnu::always_inline]] inline float row_maximum(const T* from, std::int64_t columns) {
  constexpr float kLeast = -__builtin_inff();
  Floats most[kChains] = {all(kLeast), all(kLeast), all(kLeast), all(kLeast)};
  for_vectors(
      columns, LOOM_EACH { most[chain] = larger(get(from, i, count, kLeast), most[chain]); });
  return largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));
}

template <class T>
[[gnu::always_inline]] inline Floats turned_maximum(const T* values, std::int64_t columns) {
  Floats most = all(-__builtin_inff());
  for (std::int64_t c = 0; c < columns; ++c) most = larger(load(values + c * kTurnedRows), most);
  return most;
}

[[gnu::always_inline]] inline Floats logarithms(Floats value) {
  for (std::int64_t i = 0; i < kLanes; ++i) value[i] = __builtin_logf(value[i]);
  return value;
}

}  // namespace

template <class T>
void softmax_row(T* to, const T* from, float* scratch, std::int64_t columns) noexcept {
  const Floats maximum = all(row_maximum(from, columns));
  Sum sum;
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = exponential(get(from, i, count, -__builtin_inff()) - maximum);
        sum.chains[chain] += value;
        store(scratch + i, value);
      });
  const Floats factor = all(1.0F / sum.total());
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        put(to, i, count, load(scratch + i) * factor);
      });
}

template <class T>
void log_softmax_row(T* to, const T* from, float*, std::int64_t columns) noexcept {
  const Floats maximum = all(row_maximum(from, columns));
  Sum sum;
  for_vectors(
      columns, LOOM_EACH {
        sum.chains[chain] += exponential(get(from, i, count, -__builtin_inff()) - maximum);
      });
  const Floats logarithm = all(__builtin_logf(sum.total()));
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        put(to, i, count, get(from, i, count, 0) - maximum - logarithm);
      });
}

template <class T>
void softmax_gradient_row(T* to, const T* grad, const T* output, std::int64_t columns) noexcept {
  Sum sum;
  for_vectors(
      columns,
      LOOM_EACH { sum.chains[chain] += get(grad, i, count, 0) * get(output, i, count, 0); });
  const Floats mean = all(sum.total());
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        put(to, i, count, (get(grad, i, count, 0) - mean) * get(output, i, count, 0));
      });
}

template <class T>
void log_softmax_gradient_row(T* to, const T* grad, const T* output,
                              std::int64_t columns) noexcept {
  Sum sum;
  for_vectors(columns, LOOM_EACH { sum.chains[chain] += get(grad, i, count, 0); });
  const Floats total = all(sum.total());
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        put(to, i, count,
            get(grad, i, count, 0) -
                exponential(smaller(all(88), get(output, i, count, 0))) * total);
      });
}

template <class T>
void softmax_turned(T* values, float* scratch, std::int64_t columns, float* maxima,
                    float* sums) noexcept {
  for (std::int64_t i = 0; i < kTurnedRows; i += kLanes) {
    const Floats maximum = turned_maximum(values + i, columns);
    Floats sum = {};
    for (std::int64_t c = 0; c < columns; ++c) {
      const Floats value = exponential(load(values + c * kTurnedRows + i) - maximum);
      sum += value;
      store(scratch + c * kLanes, value);
    }
    const Floats factor = all(1.0F) / sum;
    for (std::int64_t c = 0; c < columns; ++c) {
      store(values + c * kTurnedRows + i, load(scratch + c * kLanes) * factor);
    }
    store(maxima + i, maximum);
    store(sums + i, sum);
  }
}

template <class T>
void log_softmax_turned(T* values, std::int64_t columns) noexcept {
  for (std::int64_t i = 0; i < kTurnedRows; i += kLanes) {
    const Floats maximum = turned_maximum(values + i, columns);
    Floats sum = {};
    for (std::int64_t c = 0; c < columns; ++c) {
      sum += exponential(load(values + c * kTurnedRows + i) - maximum);
    }
    const Floats logarithm = logarithms(sum);
    for (std::int64_t c = 0; c < columns; ++c) {
      T* const value = values + c * kTurnedRows + i;
      store(value, load(value) - maximum - logarithm);
    }
  }
}

#define LOOM_INSTANTIATE(T)                                                              \
  template void softmax_row(T*, const T*, float*, std::int64_t) noexcept;                \
  template void log_softmax_row(T*, const T*, float*, std::int64_t) noexcept;            \
  template void softmax_gradient_row(T*, const T*, const T*, std::int64_t) noexcept;     \
  template void log_softmax_gradient_row(T*, const T*, const T*, std::int64_t) noexcept; \
  template void softmax_turned(T*, float*, std::int64_t, float*, float*) noexcept;       \
  template void log_softmax_turned(T*, std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
