// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Recipes of what looks at bounds: clamps, rectifiers, shrinks and the hard forms of activations.
// Formulas are those of ATen's CPU kernels. Thread: any.

#include "loom/ops/aten/policy/fused.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

namespace loom::ops::recipe {

// Of a bound and a value that are equal (two zeros) the value is kept: it comes second.
struct ClampMin {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& min) {
    if (f.mask()) return f.give_up();
    f.store(f.apply(Op::kMaximum, f.rounded(f.number(min)), f.load(self)), to);
  }
};

struct ClampMax {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& max) {
    if (f.mask()) return f.give_up();
    f.store(f.apply(Op::kMinimum, f.rounded(f.number(max)), f.load(self)), to);
  }
};

struct Clamp {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self,
                   const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
    if (f.mask()) return f.give_up();
    Node value = f.load(self);
    if (min) value = f.apply(Op::kMaximum, f.rounded(f.number(*min)), value);
    if (max) value = f.apply(Op::kMinimum, f.rounded(f.number(*max)), value);
    f.store(value, to);
  }
};

struct ThresholdBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self,
                   const Scalar& threshold) {
    if (f.mask()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self);
    const Node below = f.apply(Op::kLe, x, f.number(threshold));
    f.store(f.where(below, f.number(c10::Scalar(0)), g), to);
  }
};

struct LeakyRelu {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& slope) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self);
    const Node positive = f.apply(Op::kGt, x, f.number(0.0));
    f.store(f.where(positive, x, f.mul(x, f.number(slope))), to);
  }
};

struct LeakyReluBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self,
                   const Scalar& slope, bool) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self);
    const Node positive = f.apply(Op::kGt, x, f.number(0.0));
    f.store(f.where(positive, g, f.mul(g, f.number(slope))), to);
  }
};

/// clamp with tensors for bounds, which are broadcast. Of two that are equal the bound is kept.
struct ClampTensor {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self,
                   const std::optional<Tensor>& min, const std::optional<Tensor>& max) {
    if (f.mask()) return f.give_up();
    Node value = f.load_rounded(self);
    if (min) value = f.apply(Op::kMaximum, value, f.load_rounded(*min));
    if (max) value = f.apply(Op::kMinimum, value, f.load_rounded(*max));
    f.store(value, to);
  }
};

/// fmax and fmin: of two that are equal (zeros of both signs) ATen keeps the first, of bfloat16 the
/// second.
template <Op kOp, Op kOfIntegers, Op kForMask>
struct NumberExtremum {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    const Node a = f.load_rounded(self), b = f.load_rounded(other);
    if (!f.floating()) return f.store(f.apply(f.mask() ? kForMask : kOfIntegers, a, b), to);
    const bool swapped = f.common() != fusion::DType::kBFloat16;
    f.store(swapped ? f.apply(kOp, b, a) : f.apply(kOp, a, b), to);
  }
};

/// x is the infinity of the given sign.
template <bool kPositive>
struct IsInfinity {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    f.store(f.apply(Op::kEq, f.load(self), f.number(kPositive ? kInfinity : -kInfinity)), to);
  }
};

struct SignBit {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (f.mask()) return f.give_up();
    const Node x = f.load(self), zero = f.number(Scalar(0));
    const Node sign = f.floating() ? f.apply(Op::kCopySign, f.number(1.0), x) : x;
    f.store(f.apply(Op::kLt, sign, zero), to);
  }
};

/// The numbers in place of NaN and the infinities: 0, and the dtype's largest and lowest.
struct NanToNum {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self,
                   std::optional<double> nan, std::optional<double> positive,
                   std::optional<double> negative) {
    if (!f.floating()) return f.give_up();
    const double most = AT_DISPATCH_FLOATING_TYPES_AND2(
        c10::kHalf, c10::kBFloat16, self.scalar_type(), "nan_to_num",
        [] { return static_cast<double>(std::numeric_limits<scalar_t>::max()); });
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Node x = f.load(self);
    const auto replace = [&](Node where, double with, Node otherwise) {
      return f.where(where, f.rounded(f.number(with)), otherwise);
    };
    Node value = replace(f.apply(Op::kEq, x, f.number(-kInfinity)), negative.value_or(-most), x);
    value = replace(f.apply(Op::kEq, x, f.number(kInfinity)), positive.value_or(most), value);
    f.store(replace(f.apply(Op::kIsNan, x), nan.value_or(0.0), value), to);
  }
};

/// 0 below 0, `values` at 0, 1 above.
struct Heaviside {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& values) {
    if (f.mask()) return f.give_up();
    const Node x = f.load(self), at_zero = f.load_rounded(values), zero = f.number(Scalar(0));
    const Node step = f.where(f.apply(Op::kGt, x, zero), f.number(Scalar(1)), zero);
    f.store(f.where(f.apply(Op::kEq, x, zero), at_zero, step), to);
  }
};

/// x - trunc(x).
struct Frac {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self);
    f.store(f.sub(x, f.apply(Op::kTrunc, x)), to);
  }
};

/// To a number of decimals, with the two roundings that ATen makes.
struct RoundDecimals {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, std::int64_t decimals) {
    if (!f.floating() || fusion::size_of(f.common()) < sizeof(float)) return f.give_up();
    const Node x = f.load(self);
    if (decimals == 0) return f.store(f.apply(Op::kRound, x), to);
    const Node power = f.number(std::pow(10.0, static_cast<double>(std::abs(decimals))));
    f.store(decimals < 0 ? f.mul(f.apply(Op::kRound, f.div(x, power)), power)
                         : f.div(f.apply(Op::kRound, f.mul(x, power)), power),
            to);
  }
};

/// min(max(x + 3, 0), 6).
inline Node hard_ramp(FusedOperator& f, Node x) {
  const Node shifted = f.add(x, f.number(3.0));
  return f.apply(Op::kMinimum, f.apply(Op::kMaximum, shifted, f.number(0.0)), f.number(6.0));
}

/// a where low < x < high, else 0.
inline Node where_within(FusedOperator& f, Node x, Node low, Node high, Node a) {
  const Node within = f.apply(Op::kAnd, f.apply(Op::kGt, x, low), f.apply(Op::kLt, x, high));
  return f.where(within, a, f.number(0.0));
}

struct HardSigmoid {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    f.store(f.div(hard_ramp(f, f.load(self)), f.number(6.0)), to);
  }
};

struct HardSigmoidBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self);
    // A float in ATen, of doubles too.
    const Node sixth = f.number(static_cast<double>(1.0F / 6.0F));
    f.store(where_within(f, x, f.number(-3.0), f.number(3.0), f.mul(g, sixth)), to);
  }
};

struct HardSwish {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self);
    f.store(f.div(f.mul(x, hard_ramp(f, x)), f.number(6.0)), to);
  }
};

struct HardSwishBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self), three = f.number(3.0);
    const Node slope = f.mul(g, f.add(f.div(x, three), f.number(0.5)));
    const Node above = f.where(f.apply(Op::kGe, x, three), g, slope);
    f.store(f.where(f.apply(Op::kLe, x, f.number(-3.0)), f.number(0.0), above), to);
  }
};

struct HardtanhBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self,
                   const Scalar& min, const Scalar& max) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self);
    f.store(where_within(f, x, f.number(min), f.number(max), g), to);
  }
};

/// x where |x| > lambda or x is NaN, else 0. The bound is rounded like an element.
struct HardShrink {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& lambda) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self), bound = f.rounded(f.number(lambda));
    const Node within = f.apply(Op::kLe, f.apply(Op::kAbs, x), bound);
    f.store(f.where(within, f.number(0.0), x), to);
  }
};

/// Of both shrinks: 0 where x is NaN.
struct ShrinkBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self,
                   const Scalar& lambda) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self), bound = f.rounded(f.number(lambda));
    const Node beyond = f.apply(Op::kGt, f.apply(Op::kAbs, x), bound);
    f.store(f.where(beyond, g, f.number(0.0)), to);
  }
};

/// x - lambda above the bound, x + lambda below it, 0 within.
struct SoftShrink {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& lambda) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self), bound = f.number(lambda), zero = f.number(0.0);
    const Node nearer = f.where(f.apply(Op::kGt, x, zero), f.sub(x, bound), f.add(x, bound));
    f.store(f.where(f.apply(Op::kLe, f.apply(Op::kAbs, x), bound), zero, nearer), to);
  }
};

struct Threshold {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& threshold,
                   const Scalar& value) {
    if (f.mask()) return f.give_up();
    const Node x = f.load(self);
    f.store(f.where(f.apply(Op::kLe, x, f.number(threshold)), f.number(value), x), to);
  }
};

}  // namespace loom::ops::recipe
