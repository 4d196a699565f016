// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/sums.h"

#include "loom/simd/float_loops.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// Calls body(element, count, chain) for the vectors of some elements, then end(), until all runs
/// are through.
template <class Body, class End>
[[gnu::always_inline]] inline void for_runs(std::int64_t runs, std::int64_t stride,
                                            std::int64_t columns, Body body, End end) {
  std::int64_t pending = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    for (std::int64_t column = 0; column < columns; column += kElementsOfSum) {
      const std::int64_t begin = run * stride + column;
      const std::int64_t left = columns - column;
      const std::int64_t length = left < kElementsOfSum ? left : kElementsOfSum;
      for_vectors(length, LOOM_EACH { body(begin + i, count, chain); });
      pending += length;
      if (pending < kElementsOfSum) continue;
      end();
      pending = 0;
    }
  }
  end();
}

}  // namespace

template <class T>
double sum_of_runs(const T* from, std::int64_t runs, std::int64_t stride,
                   std::int64_t columns) noexcept {
  double all_of = 0;
  Sum sum;
  for_runs(
      runs, stride, columns, LOOM_EACH { sum.chains[chain] += get(from, i, count, 0); },
      [&]() __attribute__((always_inline)) {
        all_of += sum.total();
        sum = {};
      });
  return all_of;
}

template <class T>
double square_sum_of_runs(const T* from, std::int64_t runs, std::int64_t stride,
                          std::int64_t columns, float mean) noexcept {
  double all_of = 0;
  Sum sum;
  for_runs(
      runs, stride, columns,
      LOOM_EACH {
        const Floats value = get(from, i, count, mean) - all(mean);
        sum.chains[chain] += value * value;
      },
      [&]() __attribute__((always_inline)) {
        all_of += sum.total();
        sum = {};
      });
  return all_of;
}

template <class T>
void gradient_sums_of_runs(const T* grad, const T* from, std::int64_t runs, std::int64_t stride,
                           std::int64_t columns, float mean, double* sums) noexcept {
  Sum plain, products;
  sums[0] = sums[1] = 0;
  for_runs(
      runs, stride, columns,
      LOOM_EACH {
        const Floats value = get(grad, i, count, 0);
        plain.chains[chain] += value;
        products.chains[chain] += value * (get(from, i, count, mean) - all(mean));
      },
      [&]() __attribute__((always_inline)) {
        sums[0] += plain.total();
        sums[1] += products.total();
        plain = products = {};
      });
}

template <class T>
void add_rows(const T* from, std::int64_t rows, std::int64_t stride, float* sums,
              std::int64_t columns) noexcept {
  std::int64_t column = 0;
  // Whole lines of several vectors of each row, none of which waits for another.
  for (; column + kChains * kLanes <= columns; column += kChains * kLanes) {
    Floats all_of[kChains];
    for (int c = 0; c < kChains; ++c) all_of[c] = load(sums + column + c * kLanes);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const at = from + r * stride + column;
      for (int c = 0; c < kChains; ++c) all_of[c] += load(at + c * kLanes);
    }
    for (int c = 0; c < kChains; ++c) store(sums + column + c * kLanes, all_of[c]);
  }
  for (; column < columns; column += kLanes) {
    const std::int64_t count = columns - column < kLanes ? columns - column : kLanes;
    Floats sum = get(sums, column, count, 0);
    for (std::int64_t r = 0; r < rows; ++r) sum += get(from + r * stride, column, count, 0);
    put(sums, column, count, sum);
  }
}

template <class T>
void add_moments(const T* from, const float* shift, float* sums, float* squares,
                 std::int64_t columns) noexcept {
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        const Floats value = get(from, i, count, 0) - get(shift, i, count, 0);
        put(sums, i, count, get(sums, i, count, 0) + value);
        put(squares, i, count, get(squares, i, count, 0) + value * value);
      });
}

template <class T>
void add_gradients(const T* grad, const T* from, const float* means, float* sums, float* products,
                   std::int64_t columns) noexcept {
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        const Floats value = get(grad, i, count, 0);
        const Floats centred = get(from, i, count, 0) - get(means, i, count, 0);
        put(sums, i, count, get(sums, i, count, 0) + value);
        put(products, i, count, get(products, i, count, 0) + value * centred);
      });
}

void add_to_doubles(double* to, const float* from, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] += static_cast<double>(from[i]);
}

void add_doubles(double* to, const double* from, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <class T>
double sum_of_numbers(const T* from, std::int64_t columns) noexcept {
  double all_of = 0;
  for (std::int64_t begin = 0; begin < columns; begin += kElementsOfSum) {
    const std::int64_t left = columns - begin;
    Sum sum;
    for_vectors(
        left < kElementsOfSum ? left : kElementsOfSum, LOOM_EACH {
          const Floats value = get(from, begin + i, count, 0);
          sum.chains[chain] += value == value ? value : all(0);
        });
    all_of += sum.total();
  }
  return all_of;
}

#define LOOM_INSTANTIATE(T)                                                                    \
  template double sum_of_runs(const T*, std::int64_t, std::int64_t, std::int64_t) noexcept;    \
  template double square_sum_of_runs(const T*, std::int64_t, std::int64_t, std::int64_t,       \
                                     float) noexcept;                                          \
  template void gradient_sums_of_runs(const T*, const T*, std::int64_t, std::int64_t,          \
                                      std::int64_t, float, double*) noexcept;                  \
  template void add_rows(const T*, std::int64_t, std::int64_t, float*, std::int64_t) noexcept; \
  template void add_moments(const T*, const float*, float*, float*, std::int64_t) noexcept;    \
  template void add_gradients(const T*, const T*, const float*, float*, float*,                \
                              std::int64_t) noexcept;                                          \
  template double sum_of_numbers(const T*, std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
