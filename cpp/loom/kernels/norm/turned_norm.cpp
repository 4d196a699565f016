// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/turned_norm.h"

#include "loom/kernels/norm/wide_row.h"
#include "loom/simd/floats.h"

namespace loom::kernels::norm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// Calls body(column, vector) for the elements of some rows, and stores what it returns if it does.
template <class T, class Body>
[[gnu::always_inline]] inline void for_columns(T* values, std::int64_t columns, Body body) {
  for (std::int64_t c = 0; c < columns; ++c, values += kTurnedRows) {
    if constexpr (std::is_void_v<decltype(body(c, Floats{}))>) {
      body(c, load(values));
    } else {
      store(values, body(c, load(values)));
    }
  }
}

/// 1 / sqrt(squares / columns + eps), in double. Statistics that float32 does not hold are computed
/// again; but the mean of infinite elements of a layer norm stays NaN, as ATen's.
template <class T>
void find_rstd(const T* values, std::int64_t columns, const TurnedNorm& norm,
               TurnedStatistics& found) {
  const double share = 1 / static_cast<double>(columns);
  for (std::int64_t row = 0; row < kTurnedRows; ++row) {
    // Rounding leaves less than nothing of squares of which nothing should be left.
    if (found.squares[row] < 0) found.squares[row] = 0;
    double variance = static_cast<double>(found.squares[row]) * share;
    if (needs_wide_statistics(variance, norm.eps)) [[unlikely]] {
      const WideStatistics wide = wide_statistics(values + row, kTurnedRows, columns);
      if (norm.of_rows || __builtin_isfinite(wide.mean)) {
        found.mean[row] = static_cast<float>(wide.mean);
        found.squares[row] = static_cast<float>(wide.squares);
        variance = wide.squares * share;
      }
    }
    variance += norm.eps;
    const bool none = norm.of_rows && variance == 0;
    found.rstd[row] = none ? 0 : static_cast<float>(1 / __builtin_sqrt(variance));
  }
}

}  // namespace

template <class T>
void normalise_turned(T* values, std::int64_t columns, const TurnedNorm& norm,
                      TurnedStatistics& found) noexcept {
  const Floats share = all(1 / static_cast<float>(columns));
  for (std::int64_t row = 0; row < kTurnedRows; row += kLanes) {
    Floats sum = {}, rest = {}, squares = {};
    for_columns(values + row, columns, [&](std::int64_t, Floats value) { sum += value; });
    const Floats about = sum * share;
    for_columns(values + row, columns, [&](std::int64_t, Floats value) {
      const Floats distance = value - about;
      rest += distance;
      squares += distance * distance;
    });
    // Distances are from the mean but for its rounding, which is what is left of them.
    store(found.mean + row, about + rest * share);
    store(found.squares + row, squares - rest * rest * share);
  }
  find_rstd(values, columns, norm, found);
  for (std::int64_t row = 0; row < kTurnedRows; row += kLanes) {
    const Floats mean = load(found.mean + row), rstd = load(found.rstd + row);
    if (norm.of_rows) {
      const Floats factor = rstd * load(norm.factors + row), term = load(norm.terms + row);
      for_columns(values + row, columns,
                  [&](std::int64_t, Floats value) { return (value - mean) * factor + term; });
    } else {
      for_columns(values + row, columns, [&](std::int64_t c, Floats value) {
        return (value - mean) * rstd * all(norm.factors[c]) + all(norm.terms[c]);
      });
    }
  }
}

template <class T>
void turned_norm_gradient(T* grad, const T* values, std::int64_t columns,
                          TurnedGradient& by) noexcept {
  const Floats share = all(1 / static_cast<float>(columns));
  for (std::int64_t row = 0; row < kTurnedRows; row += kLanes) {
    const Floats mean = load(by.mean + row), rstd = load(by.rstd + row);
    const auto normal = [&](std::int64_t c) {
      return (load(values + c * kTurnedRows + row) - mean) * rstd;
    };
    Floats sum = {}, product = {};
    for_columns(grad + row, columns, [&](std::int64_t c, Floats slope) {
      sum += slope;
      product += slope * normal(c);
    });
    store(by.sums + row, sum);
    store(by.products + row, product);
    const Floats factor = rstd * load(by.factors + row);
    const Floats offset = sum * share, scale = product * share;
    for_columns(grad + row, columns, [&](std::int64_t c, Floats slope) {
      return (slope - offset - normal(c) * scale) * factor;
    });
  }
}

#define LOOM_INSTANTIATE(T)                                                                        \
  template void normalise_turned(T*, std::int64_t, const TurnedNorm&, TurnedStatistics&) noexcept; \
  template void turned_norm_gradient(T*, const T*, std::int64_t, TurnedGradient&) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm::LOOM_SIMD
