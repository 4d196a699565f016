// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/scalar_math.h"

#include <cmath>
#include <limits>
#include <math.h>  // lgamma_r is POSIX's
#include <numbers>

namespace loom::fusion {
namespace {

/// erf(x) - y for x, y >= 0, without cancellation where erf is near 1.
double error_of(double x, double y) { return y < 0.5 ? std::erf(x) - y : (1.0 - y) - std::erfc(x); }

}  // namespace

// Winitzki's closed form is within 0.2 %; each of Halley's steps triples the digits.
double inverse_erf(double y) noexcept {
  const double size = std::fabs(y);
  if (!(size <= 1.0)) return std::numeric_limits<double>::quiet_NaN();
  if (size == 1.0) return std::copysign(std::numeric_limits<double>::infinity(), y);
  constexpr double kA = 0.147;
  const double log_term = std::log1p(-size * size);
  const double t = 2.0 / (std::numbers::pi * kA) + log_term / 2.0;
  const double s = std::sqrt(t * t - log_term / kA);
  // s - t, whichever form does not cancel.
  double x = std::sqrt(t > 0 ? -log_term / kA / (s + t) : s - t);
  for (int step = 0; step < 3; ++step) {
    const double slope = 2.0 * std::numbers::inv_sqrtpi * std::exp(-x * x);
    const double newton = error_of(x, size) / slope;
    x -= newton / (1.0 + x * newton);
  }
  return std::copysign(x, y);
}

float inverse_erf(float y) noexcept {
  return static_cast<float>(inverse_erf(static_cast<double>(y)));
}

double log_gamma(double x) noexcept {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

float log_gamma(float x) noexcept {
  int sign = 0;
  return ::lgammaf_r(x, &sign);
}

}  // namespace loom::fusion
