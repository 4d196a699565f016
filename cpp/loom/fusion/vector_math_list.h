// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions of Sleef that ATen's Vectorized computes operations with, and in which accuracy:
// X(operation, name, suffix for float, suffix for double). libtorch_cpu exports them. Functions of
// float that vector_formulas.h has are computed by that instead.

#define LOOM_SLEEF_UNARY(X)    \
  X(kExp, exp, _u10, _u10)     \
  X(kExp2, exp2, _u10, _u10)   \
  X(kExpm1, expm1, _u10, _u10) \
  X(kLog, log, _u10, _u10)     \
  X(kLog2, log2, _u10, _u10)   \
  X(kLog10, log10, _u10, _u10) \
  X(kLog1p, log1p, _u10, _u10) \
  X(kAsin, asin, _u10, _u10)   \
  X(kAcos, acos, _u10, _u10)   \
  X(kAtan, atan, _u10, _u10)   \
  X(kTanh, tanh, _u10, _u10)   \
  X(kAsinh, asinh, _u10, _u10) \
  X(kAcosh, acosh, _u10, _u10) \
  X(kAtanh, atanh, _u10, _u10) \
  X(kErf, erf, _u10, _u10)     \
  X(kLgamma, lgamma, _u10, _u10)

/// Functions of angles.
#define LOOM_SLEEF_ANGLE(X) \
  X(kSin, sin, _u35, _u10)  \
  X(kCos, cos, _u35, _u10)  \
  X(kTan, tan, _u10, _u10)

/// Functions that Sleef takes to be infinite from 88 (float) and 710 (double) on, where halves of
/// exponentials are not yet.
#define LOOM_SLEEF_HYPERBOLIC(X) \
  X(kSinh, sinh, _u10, _u10)     \
  X(kCosh, cosh, _u10, _u10)

#define LOOM_SLEEF_BINARY(X)   \
  X(kPow, pow, _u10, _u10)     \
  X(kAtan2, atan2, _u10, _u10) \
  X(kHypot, hypot, _u05, _u05)

/// Functions that Sleef divides for, whose quotient may leave the range.
#define LOOM_SLEEF_REMAINDER(X) X(kFmod, fmod, , )
