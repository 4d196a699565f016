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

#define LOOM_EACH_ROW                                                                     \
  [&](std::int64_t row, std::int64_t i, std::int64_t count, Floats& sum, Floats& product) \
      __attribute__((always_inline))

/// Calls add(row, column, count, first, second) for the rows of some vectors of columns at a time,
/// whose sums stay in registers.
template <class Add>
[[gnu::always_inline]] inline void add_pairs(std::int64_t columns, std::int64_t rows, float* first,
                                             float* second, Add add) {
  std::int64_t column = 0;
  for (; column + kChains * kLanes <= columns; column += kChains * kLanes) {
    Floats sums[kChains], products[kChains];
    for (int c = 0; c < kChains; ++c) {
      sums[c] = load(first + column + c * kLanes);
      products[c] = load(second + column + c * kLanes);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (int c = 0; c < kChains; ++c) {
        add(row, column + c * kLanes, kLanes, sums[c], products[c]);
      }
    }
    for (int c = 0; c < kChains; ++c) {
      store(first + column + c * kLanes, sums[c]);
      store(second + column + c * kLanes, products[c]);
    }
  }
  for (; column < columns; column += kLanes) {
    const std::int64_t count = columns - column < kLanes ? columns - column : kLanes;
    Floats sum = get(first, column, count, 0), product = get(second, column, count, 0);
    for (std::int64_t row = 0; row < rows; ++row) add(row, column, count, sum, product);
    put(first, column, count, sum);
    put(second, column, count, product);
  }
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
void moment_sums_of_runs(const T* from, std::int64_t runs, std::int64_t stride,
                         std::int64_t columns, float shift, double* sums) noexcept {
  Sum plain, squares;
  sums[0] = sums[1] = 0;
  for_runs(
      runs, stride, columns,
      LOOM_EACH {
        const Floats value = get(from, i, count, shift) - all(shift);
        plain.chains[chain] += value;
        squares.chains[chain] += value * value;
      },
      [&]() __attribute__((always_inline)) {
        sums[0] += plain.total();
        sums[1] += squares.total();
        plain = squares = {};
      });
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
void add_moments(const T* from, std::int64_t rows, std::int64_t stride, const float* shift,
                 float* sums, float* squares, std::int64_t columns) noexcept {
  add_pairs(
      columns, rows, sums, squares, LOOM_EACH_ROW {
        const Floats value = get(from + row * stride, i, count, 0) - get(shift, i, count, 0);
        sum += value;
        product += value * value;
      });
}

template <class T>
void add_gradients(const T* grad, const T* from, std::int64_t rows, std::int64_t stride,
                   const float* means, float* sums, float* products,
                   std::int64_t columns) noexcept {
  add_pairs(
      columns, rows, sums, products, LOOM_EACH_ROW {
        const Floats value = get(grad + row * stride, i, count, 0);
        sum += value;
        product += value * (get(from + row * stride, i, count, 0) - get(means, i, count, 0));
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

#define LOOM_INSTANTIATE(T)                                                                     \
  template double sum_of_runs(const T*, std::int64_t, std::int64_t, std::int64_t) noexcept;     \
  template void moment_sums_of_runs(const T*, std::int64_t, std::int64_t, std::int64_t, float,  \
                                    double*) noexcept;                                          \
  template void gradient_sums_of_runs(const T*, const T*, std::int64_t, std::int64_t,           \
                                      std::int64_t, float, double*) noexcept;                   \
  template void add_rows(const T*, std::int64_t, std::int64_t, float*, std::int64_t) noexcept;  \
  template void add_moments(const T*, std::int64_t, std::int64_t, const float*, float*, float*, \
                            std::int64_t) noexcept;                                             \
  template void add_gradients(const T*, const T*, std::int64_t, std::int64_t, const float*,     \
                              float*, float*, std::int64_t) noexcept;                           \
  template double sum_of_numbers(const T*, std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
