// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/moments.h"

#include "loom/kernels/norm/extrema.h"
#include "loom/kernels/norm/sums.h"
#include "loom/kernels/norm/wide_row.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace loom::kernels::norm {
namespace {

/// The one value of all elements, if they are all the same and finite; NaN where one is not.
template <class T>
std::optional<double> only_value(const T* from, std::int64_t runs, std::int64_t stride,
                                 std::int64_t columns) noexcept {
  const float first = simd::widen(from[0]);
  for (std::int64_t run = 0; run < runs; ++run) {
    float least = first, most = first;
    if (columns > 1) {
      extrema<T>(from + run * stride, columns, &least, &most);
    } else {
      least = most = simd::widen(from[run * stride]);
    }
    if (std::isnan(least)) return static_cast<double>(least);
    if (least != first || most != first || !std::isfinite(first)) return std::nullopt;
  }
  return static_cast<double>(first);
}

}  // namespace

template <class T>
double total(const T* from, std::int64_t count, bool of_numbers) noexcept {
  const double sum =
      of_numbers ? sum_of_numbers<T>(from, count) : sum_of_runs<T>(from, 1, 0, count);
  if (std::isfinite(sum)) return sum;
  double wide = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(simd::widen(from[i]));
    wide += of_numbers && std::isnan(value) ? 0 : value;
  }
  return wide;
}

template <class T>
Moments moments(const T* from, std::int64_t count) noexcept {
  Moments all{.count = static_cast<double>(count)};
  all.mean = sum_of_runs<T>(from, 1, 0, count) / all.count;
  // Distances are from the mean as a float, and as sums in float give it, which is a little beside.
  const auto shift = static_cast<float>(all.mean);
  double sums[2];
  moment_sums_of_runs<T>(from, 1, 0, count, shift, sums);
  const double beside = sums[0] / all.count, squares = sums[1];
  if (needs_wide_moments(squares, all.count)) return wide_moments(from, 1, 0, count);
  all.mean = static_cast<double>(shift) + beside;
  all.squares = std::max(squares - beside * sums[0], 0.0);
  return all;
}

// By Welford's steps, which also have ATen's means where an element is infinite.
template <class T>
Moments wide_moments(const T* from, std::int64_t runs, std::int64_t stride,
                     std::int64_t columns) noexcept {
  if (const auto value = only_value(from, runs, stride, columns)) {
    return {static_cast<double>(runs * columns), *value, *value - *value};
  }
  Moments all;
  for (std::int64_t run = 0; run < runs; ++run) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const auto value = static_cast<double>(simd::widen(from[run * stride + i]));
      all.count += 1;
      const double distance = value - all.mean;
      all.mean += distance / all.count;
      all.squares += distance * (value - all.mean);
    }
  }
  return all;
}

template <class T>
Moments wide_moments_of_sums(const T* from, std::int64_t runs, std::int64_t stride,
                             std::int64_t columns) noexcept {
  if (const auto value = only_value(from, runs, stride, columns)) {
    return {static_cast<double>(runs * columns), *value, *value - *value};
  }
  const auto sum_of = [&](auto term) {
    double sum = 0;
    for (std::int64_t run = 0; run < runs; ++run) {
      for (std::int64_t i = 0; i < columns; ++i) {
        sum += term(static_cast<double>(simd::widen(from[run * stride + i])));
      }
    }
    return sum;
  };
  Moments all{.count = static_cast<double>(runs * columns)};
  all.mean = sum_of([](double value) { return value; }) / all.count;
  all.squares = sum_of([&](double value) { return (value - all.mean) * (value - all.mean); });
  return all;
}

template <class T>
void wide_moments_of_columns(const T* from, std::int64_t rows, std::int64_t stride,
                             std::int64_t channels, Moments* found) noexcept {
  const auto count = static_cast<double>(rows);
  for (std::int64_t c = 0; c < channels; ++c) found[c] = {.count = count};
  const auto for_elements = [&](auto add) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* const elements = from + row * stride;
      for (std::int64_t c = 0; c < channels; ++c) {
        add(found[c], static_cast<double>(simd::widen(elements[c])));
      }
    }
  };
  for_elements([](Moments& of, double value) { of.mean += value; });
  for (std::int64_t c = 0; c < channels; ++c) found[c].mean /= count;
  for_elements(
      [](Moments& of, double value) { of.squares += (value - of.mean) * (value - of.mean); });
}

bool needs_wide_moments(double squares, double count, double eps) noexcept {
  return needs_wide_statistics(squares / count, eps);
}

Moments merged(const Moments& a, const Moments& b) noexcept {
  if (a.count == 0) return b;
  const double distance = b.mean - a.mean;
  const double count = a.count + b.count;
  return {count, a.mean + distance * (b.count / count),
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}

template double total(const float*, std::int64_t, bool) noexcept;
template double total(const simd::BFloat16*, std::int64_t, bool) noexcept;
template double total(const simd::Half*, std::int64_t, bool) noexcept;
template Moments moments(const float*, std::int64_t) noexcept;
template Moments moments(const simd::BFloat16*, std::int64_t) noexcept;
template Moments moments(const simd::Half*, std::int64_t) noexcept;
template Moments wide_moments(const float*, std::int64_t, std::int64_t, std::int64_t) noexcept;
template Moments wide_moments(const simd::BFloat16*, std::int64_t, std::int64_t,
                              std::int64_t) noexcept;
template Moments wide_moments(const simd::Half*, std::int64_t, std::int64_t, std::int64_t) noexcept;
template void wide_moments_of_columns(const float*, std::int64_t, std::int64_t, std::int64_t,
                                      Moments*) noexcept;
template void wide_moments_of_columns(const simd::BFloat16*, std::int64_t, std::int64_t,
                                      std::int64_t, Moments*) noexcept;
template void wide_moments_of_columns(const simd::Half*, std::int64_t, std::int64_t, std::int64_t,
                                      Moments*) noexcept;
template Moments wide_moments_of_sums(const float*, std::int64_t, std::int64_t,
                                      std::int64_t) noexcept;
template Moments wide_moments_of_sums(const simd::BFloat16*, std::int64_t, std::int64_t,
                                      std::int64_t) noexcept;
template Moments wide_moments_of_sums(const simd::Half*, std::int64_t, std::int64_t,
                                      std::int64_t) noexcept;

}  // namespace loom::kernels::norm
