// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/moments.h"

#include "loom/kernels/norm/extrema.h"
#include "loom/kernels/norm/sums.h"

#include <algorithm>
#include <cmath>

namespace loom::kernels::norm {
namespace {

// Where squares are less than this on average, float may have lost digits of them or flushed them
// to zero: its least normal number is 1.2e-38, and a millionth of the square that counts is enough.
constexpr double kLeastSquare = 1e-30;

/// By Welford's steps in double, which also have ATen's means where an element is infinite.
template <class T>
Moments wide_moments(const T* from, std::int64_t count) noexcept {
  float least = 0, most = 0;
  extrema<T>(from, count, &least, &most);
  if (std::isnan(least) || (least == most && std::isfinite(least))) {
    const auto value = static_cast<double>(least);
    return {static_cast<double>(count), value, value - value};
  }
  Moments all;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(simd::widen(from[i]));
    all.count += 1;
    const double distance = value - all.mean;
    all.mean += distance / all.count;
    all.squares += distance * (value - all.mean);
  }
  return all;
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
  // Distances are from the mean as a float, which is a little beside it.
  const auto shift = static_cast<float>(all.mean);
  const double beside = all.mean - static_cast<double>(shift);
  const double squares = square_sum_of_runs<T>(from, 1, 0, count, shift);
  if (!std::isfinite(squares) || squares < kLeastSquare * all.count) {
    return wide_moments(from, count);
  }
  all.squares = std::max(squares - all.count * beside * beside, 0.0);
  return all;
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
template Moments moments(const float*, std::int64_t) noexcept;
template Moments moments(const simd::BFloat16*, std::int64_t) noexcept;

}  // namespace loom::kernels::norm
