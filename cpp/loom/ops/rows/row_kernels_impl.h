// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The kernels of rows: included once for each instruction set. A row is read from memory once; what
// comes after finds it in the first- or second-level cache.

#include "loom/ops/rows/row_extrema.h"
#include "loom/ops/rows/row_kernels.h"
#include "loom/ops/rows/row_loops.h"

namespace loom::ops {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

// A NaN need not become the maximum: it is in the sum.
template <class T>
LOOM_ROW_INLINE float row_maximum(const T* from, std::int64_t columns) {
  constexpr float kLeast = -__builtin_inff();
  Floats most[kChains] = {all(kLeast), all(kLeast), all(kLeast), all(kLeast)};
  for_vectors(
      columns, LOOM_EACH { most[chain] = larger(get(from, i, count, kLeast), most[chain]); });
  return largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));
}

template <class T>
void softmax(void* to_row, const void* from_row, float* scratch, std::int64_t columns) {
  const T* from = static_cast<const T*>(from_row);
  T* to = static_cast<T*>(to_row);
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
void log_softmax(void* to_row, const void* from_row, float*, std::int64_t columns) {
  const T* from = static_cast<const T*>(from_row);
  T* to = static_cast<T*>(to_row);
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
void softmax_gradient(void* to_row, const void* grad_row, const void* output_row,
                      std::int64_t columns) {
  const T* grad = static_cast<const T*>(grad_row);
  const T* output = static_cast<const T*>(output_row);
  T* to = static_cast<T*>(to_row);
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
void log_softmax_gradient(void* to_row, const void* grad_row, const void* output_row,
                          std::int64_t columns) {
  const T* grad = static_cast<const T*>(grad_row);
  const T* output = static_cast<const T*>(output_row);
  T* to = static_cast<T*>(to_row);
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
void layer_norm(void* to_row, const void* from_row, const float* weight, const float* bias,
                float* scratch, std::int64_t columns, double eps, float* statistics) {
  const T* from = static_cast<const T*>(from_row);
  T* to = static_cast<T*>(to_row);
  const auto length = static_cast<float>(columns);
  Sum sum;
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = get(from, i, count, 0);
        sum.chains[chain] += value;
        store(scratch + i, value);
      });
  const float mean = sum.total() / length;
  const Floats means = all(mean);
  Sum squares;
  for_vectors(
      columns, LOOM_EACH {
        const Floats value = get(scratch, i, count, mean) - means;
        squares.chains[chain] += value * value;
      });
  const float rstd =
      static_cast<float>(1 / __builtin_sqrt(static_cast<double>(squares.total() / length) + eps));
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
void layer_norm_gradient(void* to_row, const void* grad_row, const void* from_row,
                         const float* weight, std::int64_t columns, const float* statistics,
                         float* weight_gradient, float* bias_gradient) {
  const T* grad = static_cast<const T*>(grad_row);
  const T* from = static_cast<const T*>(from_row);
  T* to = static_cast<T*>(to_row);
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

/// Calls body(element, count, chain) for the vectors of some elements, then end(), until all runs
/// are through.
template <class Body, class End>
LOOM_ROW_INLINE void for_runs(std::int64_t runs, std::int64_t stride, std::int64_t columns,
                              Body body, End end) {
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

template <class T>
double sum(const void* row, std::int64_t runs, std::int64_t stride, std::int64_t columns) {
  const T* from = static_cast<const T*>(row);
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
double square_sum(const void* row, std::int64_t runs, std::int64_t stride, std::int64_t columns,
                  float mean) {
  const T* from = static_cast<const T*>(row);
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
void gradient_sums(const void* grad_row, const void* row, std::int64_t runs, std::int64_t stride,
                   std::int64_t columns, float mean, double* sums) {
  const T* grad = static_cast<const T*>(grad_row);
  const T* from = static_cast<const T*>(row);
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
void add_rows(const void* row, std::int64_t rows, std::int64_t stride, float* sums,
              std::int64_t columns) {
  const T* from = static_cast<const T*>(row);
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
void add_moments(const void* row, const float* shift, float* sums, float* squares,
                 std::int64_t columns) {
  const T* from = static_cast<const T*>(row);
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        const Floats value = get(from, i, count, 0) - get(shift, i, count, 0);
        put(sums, i, count, get(sums, i, count, 0) + value);
        put(squares, i, count, get(squares, i, count, 0) + value * value);
      });
}

template <class T>
void add_gradients(const void* grad_row, const void* row, const float* means, float* sums,
                   float* products, std::int64_t columns) {
  const T* grad = static_cast<const T*>(grad_row);
  const T* from = static_cast<const T*>(row);
  for_vectors(
      columns, LOOM_EACH {
        (void)chain;
        const Floats value = get(grad, i, count, 0);
        const Floats centred = get(from, i, count, 0) - get(means, i, count, 0);
        put(sums, i, count, get(sums, i, count, 0) + value);
        put(products, i, count, get(products, i, count, 0) + value * centred);
      });
}

template <class T>
void to_float(float* to, const void* from, std::int64_t count) {
  const T* elements = static_cast<const T*>(from);
  for_vectors(count, [&](std::int64_t i, std::int64_t length, int) __attribute__((always_inline)) {
    put(to, i, length, get(elements, i, length, 0));
  });
}

/// Where the windows of a side begin inside the input.
LOOM_ROW_INLINE std::int64_t first_inside(const PoolWindow::Side& side, std::int64_t to) {
  std::int64_t from = to * side.stride - side.padding;
  while (from < 0) from += side.dilation;
  return from;
}

/// The i-th element is at `place` + i * stride.
LOOM_ROW_INLINE void take_larger(const float* __restrict from, std::int32_t place,
                                 std::int32_t stride, std::int64_t count, float* __restrict best,
                                 std::int32_t* __restrict places) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = from[i];
    const bool larger = value > best[i] || value != value;
    best[i] = larger ? value : best[i];
    places[i] = larger ? place + static_cast<std::int32_t>(i) * stride : places[i];
  }
}

/// A line of the input between as many -inf as windows reach beyond it: those are never taken. What
/// is one stride apart lies together: element i is at i % stride * pitch + i / stride.
template <class T>
LOOM_ROW_INLINE void pad_line(const T* line, const PoolWindow::Side& side, float* to) {
  const std::int64_t end = side.padding + side.from;
  for (std::int64_t phase = 0; phase < side.stride; ++phase, to += side.pitch) {
    std::int64_t i = 0, at = phase;
    for (; at < side.padding; at += side.stride) to[i++] = -__builtin_inff();
    for (; at < end; at += side.stride) to[i++] = element(line[at - side.padding]);
    while (i < side.pitch) to[i++] = -__builtin_inff();
  }
}

template <class T>
void max_pool(const PoolWindow& window, void* to_plane, std::int64_t* to_places,
              const void* from_plane, float* scratch) {
  const PoolWindow::Side &rows = window.rows, &columns = window.columns;
  T* to = static_cast<T*>(to_plane);
  float* const line = scratch;
  float* const best = line + columns.stride * columns.pitch;
  auto* const places = reinterpret_cast<std::int32_t*>(best + columns.to);
  for (std::int64_t row = 0; row < rows.to; ++row) {
    const std::int64_t first = first_inside(rows, row);
    for (std::int64_t i = 0; i < columns.to; ++i) {
      best[i] = -__builtin_inff();
      places[i] = static_cast<std::int32_t>(first * columns.from + first_inside(columns, i));
    }
    const std::int64_t end = row * rows.stride - rows.padding + rows.kernel * rows.dilation;
    for (std::int64_t y = first; y < end && y < rows.from; y += rows.dilation) {
      pad_line(static_cast<const T*>(from_plane) + y * columns.from, columns, line);
      for (std::int64_t k = 0; k < columns.kernel; ++k) {
        const std::int64_t x = k * columns.dilation;
        const auto place = static_cast<std::int32_t>(y * columns.from + x - columns.padding);
        take_larger(line + x % columns.stride * columns.pitch + x / columns.stride, place,
                    static_cast<std::int32_t>(columns.stride), columns.to, best, places);
      }
    }
    for (std::int64_t i = 0; i < columns.to; ++i) {
      set_element(to[row * columns.to + i], best[i]);
      to_places[row * columns.to + i] = places[i];
    }
  }
}

LOOM_ROW_INLINE Floats root_of(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int i = 0; i < kLanes; ++i) lanes[i] = __builtin_sqrtf(lanes[i]);
  return load(lanes);
}

void adam(const AdamUpdate& u, std::int64_t all_elements) {
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

template <class T>
constexpr RowKernels kernels_of() {
  return {softmax<T>,
          log_softmax<T>,
          softmax_gradient<T>,
          log_softmax_gradient<T>,
          layer_norm<T>,
          layer_norm_gradient<T>,
          sum<T>,
          square_sum<T>,
          gradient_sums<T>,
          add_moments<T>,
          add_gradients<T>,
          add_rows<T>,
          extrema<T>,
          sum_of_numbers<T>,
          product_sum<T>,
          to_float<T>,
          max_pool<T>,
          sizeof(T) == sizeof(float) ? adam : nullptr};
}

constexpr RowKernels kRowKernels[] = {kernels_of<float>(), kernels_of<BFloat16>()};

}  // namespace
}  // namespace loom::ops
