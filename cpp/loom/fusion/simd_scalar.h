// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Plain C++ in the place of an instruction set: vectors of one element, the C++ library's
// functions.

#include "loom/fusion/op.h"
#include "loom/fusion/scalar_math.h"

#include <cmath>

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

using FloatVector = float;
using DoubleVector = double;
inline constexpr int kVectorBytes = 16;

inline void stream_vector(void* out, const void* in) { __builtin_memcpy(out, in, kVectorBytes); }
inline void end_of_stream() {}

template <Op op>
struct VectorMath;

#define LOOM_DEFINE(op, call)                         \
  template <>                                         \
  struct VectorMath<Op::op> {                         \
    template <class T>                                \
    static T apply(T a, [[maybe_unused]] T b = T()) { \
      return call;                                    \
    }                                                 \
  };
LOOM_DEFINE(kExp, std::exp(a))
LOOM_DEFINE(kExp2, std::exp2(a))
LOOM_DEFINE(kExpm1, std::expm1(a))
LOOM_DEFINE(kLog, std::log(a))
LOOM_DEFINE(kLog2, std::log2(a))
LOOM_DEFINE(kLog10, std::log10(a))
LOOM_DEFINE(kLog1p, std::log1p(a))
LOOM_DEFINE(kSin, std::sin(a))
LOOM_DEFINE(kCos, std::cos(a))
LOOM_DEFINE(kTan, std::tan(a))
LOOM_DEFINE(kAsin, std::asin(a))
LOOM_DEFINE(kAcos, std::acos(a))
LOOM_DEFINE(kAtan, std::atan(a))
LOOM_DEFINE(kSinh, std::sinh(a))
LOOM_DEFINE(kCosh, std::cosh(a))
LOOM_DEFINE(kTanh, std::tanh(a))
LOOM_DEFINE(kAsinh, std::asinh(a))
LOOM_DEFINE(kAcosh, std::acosh(a))
LOOM_DEFINE(kAtanh, std::atanh(a))
LOOM_DEFINE(kErf, std::erf(a))
LOOM_DEFINE(kNormalCdf, std::erfc(a* static_cast<T>(-0.70710678118654752)) / 2)
LOOM_DEFINE(kLgamma, log_gamma(a))
LOOM_DEFINE(kPow, std::pow(a, b))
LOOM_DEFINE(kAtan2, std::atan2(a, b))
LOOM_DEFINE(kHypot, std::hypot(a, b))
LOOM_DEFINE(kFmod, std::fmod(a, b))
#undef LOOM_DEFINE

}  // namespace
}  // namespace loom::fusion
