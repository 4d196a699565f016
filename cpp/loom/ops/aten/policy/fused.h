// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of operators that become part of fused programs. A recipe says what one operator computes:
// emit(operator, output, arguments...) has the arguments of the schema. What cannot be fused is
// launched under the base policy. Formulas are those of ATen's CPU kernels, so that both round
// alike. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/launch/fused.h"

#include <cmath>

namespace loom::ops {

template <class Recipe, class Base>
struct Fused : Base {
  static constexpr bool kFuses = true;
  /// The operands are computed with as what the result is, whatever they are.
  static constexpr bool kCommonIsOutput = requires { Recipe::kCommonIsOutput; };

  /// `common` is the dtype that the operands were promoted to.
  template <std::size_t kOutputs, class... Input>
  static bool fuse(const char* name, c10::ScalarType common,
                   const std::array<at::Tensor, kOutputs>& outputs, const Input&... inputs) {
    FusedOperator f(name, common);
    if (!f.possible()) return false;
    Recipe::emit(f, outputs[0], inputs...);
    return f.record(outputs[0].device());
  }
};

namespace recipe {

using fusion::Op;
using fusion::Type;
using Node = fusion::Node;
using at::Scalar;
using at::Tensor;

/// Unary operators of floating-point numbers.
template <Op kOp>
struct Float {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    f.store(f.apply(kOp, f.load(self)), to);
  }
};

/// Unary operators of all numbers.
template <Op kOp>
struct Number {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (f.mask()) return f.give_up();
    f.store(f.apply(kOp, f.load(self)), to);
  }
};

struct Abs {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!self.is_complex()) return Number<Op::kAbs>::emit(f, to, self);
    // The gradient of a maximum norm looks for absolute values that equal ATen's norm; float's
    // hypot is rounded in another way than ATen's.
    if (self.scalar_type() != c10::kComplexDouble || !f.floating()) return f.give_up();
    const Node real = f.load_part(self, 0);
    f.store(f.apply(Op::kHypot, real, f.load_part(self, 1)), to);
  }
};

struct BitwiseNot {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (f.floating()) return f.give_up();
    f.store(f.apply(Op::kNot, f.load(self)), to);
  }
};

/// Binary operators; kForMask is what they are for bool operands (kAdd: there is none).
template <Op kOp, Op kForMask = Op::kAdd>
struct Binary {
  template <class Self, class Other>
  static void emit(FusedOperator& f, const Tensor& to, const Self& self, const Other& other) {
    const Op op = f.mask() ? kForMask : kOp;
    if (f.mask() && kForMask == Op::kAdd) return f.give_up();
    const Node a = f.load(self);
    f.store(f.apply(op, a, f.load(other)), to);
  }
};

/// The same for floating-point numbers only; a number beside them is one of their dtype.
template <Op kOp>
struct BinaryFloat {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    if (!f.floating()) return f.give_up();
    const Node a = f.load_rounded(self);
    f.store(f.apply(kOp, a, f.load_rounded(other)), to);
  }
};

/// Products: a number that something is multiplied by keeps the precision of the computation.
struct Mul {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    const Node a = f.load(self);
    f.store(f.apply(f.mask() ? Op::kAnd : Op::kMul, a, f.load_factor(other)), to);
  }
};

/// Quotients: a number beside them keeps the precision of the computation.
struct Div {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    if (!f.floating()) return f.give_up();
    const Node a = f.load(self);
    f.store(f.div(a, f.load_factor(other)), to);
  }
};

/// Extrema: numbers beside them are rounded to the operands' dtype.
template <Op kOp, Op kForMask>
struct Extremum {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    const Node a = f.load_rounded(self);
    f.store(f.apply(f.mask() ? kForMask : kOp, a, f.load_rounded(other)), to);
  }
};

/// Bitwise operators of integers and bool.
template <Op kOp>
struct Bitwise {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    if (f.floating() || (f.mask() && kOp >= Op::kShiftLeft)) return f.give_up();
    const Node a = f.load(self);
    f.store(f.apply(kOp, a, f.load(other)), to);
  }
};

struct Add {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other,
                   const Scalar& alpha) {
    emit(f, to, self, other, alpha, 1);
  }
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other,
                   const Scalar& alpha, int sign) {
    if (alpha.isComplex() || alpha.isSymbolic()) return f.give_up();
    const Node a = f.load_rounded(self), b = f.load_rounded(other);
    if (f.mask()) {
      if (sign < 0 || !alpha.equal(1)) return f.give_up();
      return f.store(f.apply(Op::kOr, a, b), to);
    }
    if (alpha.equal(1)) return f.store(f.apply(sign < 0 ? Op::kSub : Op::kAdd, a, b), to);
    if (f.floating()) {
      const Node factor = f.rounded(f.number(Scalar(sign * alpha.to<double>())));
      return f.store(f.apply(Op::kMulAdd, b, factor, a), to);
    }
    if (sign < 0) return f.give_up();
    f.store(f.add(a, f.mul(b, f.number(alpha))), to);
  }
};

struct Sub {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other,
                   const Scalar& alpha) {
    Add::emit(f, to, self, other, alpha, -1);
  }
};

/// Comparisons: both sides are values of the common dtype.
template <Op kOp>
struct Compare {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    emit(f, to, f.load_rounded(self), f.load_rounded(other));
  }
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& other) {
    emit(f, to, f.load_rounded(self), f.rounded(f.number(other)));
  }
  static void emit(FusedOperator& f, const Tensor& to, Node a, Node b) {
    if (f.mask() && kOp != Op::kEq && kOp != Op::kNe) {
      a = f.to(Type::kInt32, a);
      b = f.to(Type::kInt32, b);
    }
    f.store(f.apply(kOp, a, b), to);
  }
};

/// Operators on truth values: operands of their own dtypes.
template <Op kOp>
struct Logical {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    const Node a = f.to(Type::kMask, f.load_as_is(self));
    f.store(f.apply(kOp, a, f.to(Type::kMask, f.load_as_is(other))), to);
  }
};

struct LogicalNot {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    f.store(f.apply(Op::kNot, f.to(Type::kMask, f.load_as_is(self))), to);
  }
};

struct Where {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& condition, const Tensor& self,
                   const Tensor& other) {
    const Node mask = f.to(Type::kMask, f.load_as_is(condition));
    const Node a = f.load_rounded(self);
    f.store(f.where(mask, a, f.load_rounded(other)), to);
  }
};

/// x to the power of a number; the small ones as ATen does them.
struct PowScalar {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& exponent) {
    if (!f.floating() || exponent.isComplex()) return f.give_up();
    const Node x = f.load(self);
    const double e = exponent.to<double>();
    Node value = x;
    const auto square = [&] {
      // ATen's vectors of bfloat16 round in between, those of half do not.
      const Node product = f.mul(x, x);
      return f.common() == fusion::DType::kBFloat16 ? f.rounded(product) : product;
    };
    if (e == 2) {
      value = f.mul(x, x);
    } else if (e == 3) {
      value = f.mul(square(), x);
    } else if (std::abs(e) == 0.5 && f.common() == fusion::DType::kHalf) {
      value = f.apply(Op::kPow, x, f.number(e));
    } else if (e == 0.5) {
      value = f.apply(Op::kSqrt, x);
    } else if (e == -0.5) {
      value = f.apply(Op::kRsqrt, x);
    } else if (e == -1) {
      value = f.apply(Op::kReciprocal, x);
    } else if (e == -2) {
      value = f.apply(Op::kReciprocal, square());
    } else if (e == 0 || e == 1) {
      return f.give_up();  // a fill and a copy
    } else {
      value = f.apply(Op::kPow, x, f.rounded(f.number(exponent)));
    }
    f.store(value, to);
  }
};

struct Addcmul {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& tensor1,
                   const Tensor& tensor2, const Scalar& value) {
    if (!f.floating()) return f.give_up();
    const Node a = f.load(self), b = f.load(tensor1);
    const Node scaled = value.equal(1) ? b : f.mul(f.number(value), b);
    f.store(f.apply(Op::kMulAdd, scaled, f.load(tensor2), a), to);
  }
};

struct Addcdiv {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& tensor1,
                   const Tensor& tensor2, const Scalar& value) {
    if (!f.floating()) return f.give_up();
    const Node a = f.load(self), b = f.load(tensor1);
    const Node scaled = value.equal(1) ? b : f.mul(f.number(value), b);
    f.store(f.add(a, f.div(scaled, f.load(tensor2))), to);
  }
};

/// a + w (b - a), from the nearer end.
struct Lerp {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& end,
                   const Scalar& weight) {
    if (!f.floating() || weight.isComplex()) return f.give_up();
    const double w = weight.to<double>();
    const Node a = f.load(self), b = f.load(end);
    const bool low = std::abs(w) < 0.5;
    f.store(f.apply(Op::kMulAdd, f.number(low ? w : w - 1), f.sub(b, a), low ? a : b), to);
  }
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& end,
                   const Tensor& weight) {
    if (!f.floating()) return f.give_up();
    const Node a = f.load(self), b = f.load(end), w = f.load(weight);
    const Node low = f.apply(Op::kLt, f.apply(Op::kAbs, w), f.number(0.5));
    const Node factor = f.where(low, w, f.sub(w, f.number(1.0)));
    f.store(f.apply(Op::kMulAdd, factor, f.sub(b, a), f.where(low, a, b)), to);
  }
};

}  // namespace recipe
}  // namespace loom::ops
