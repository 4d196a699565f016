// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/scalar_math.h"

#include <math.h>  // lgamma_r is POSIX's

namespace loom::fusion {

double log_gamma(double x) noexcept {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

float log_gamma(float x) noexcept {
  int sign = 0;
  return ::lgammaf_r(x, &sign);
}

}  // namespace loom::fusion
