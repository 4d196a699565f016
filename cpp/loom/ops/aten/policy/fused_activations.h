// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Recipes of activations that are made of exp, tanh, erf and their kin. Formulas are those of
// ATen's CPU kernels. Thread: any.

#include "loom/ops/aten/policy/fused.h"

#include <ATen/native/Activation.h>

#include <cmath>
#include <string_view>

namespace loom::ops::recipe {

inline Node logistic(FusedOperator& f, Node x) {
  const Node one = f.number(1.0);
  return f.div(one, f.add(one, f.apply(Op::kExp, f.sub(f.number(0.0), x))));
}

struct Sigmoid {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    f.store(logistic(f, f.load(self)), to);
  }
};

struct SigmoidBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& output) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), y = f.load(output);
    f.store(f.mul(f.mul(g, f.sub(f.number(1.0), y)), y), to);
  }
};

struct TanhBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& output) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), y = f.load(output);
    f.store(f.mul(g, f.sub(f.number(1.0), f.mul(y, y))), to);
  }
};

struct Silu {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self);
    f.store(f.div(x, f.add(f.number(1.0), f.apply(Op::kExp, f.apply(Op::kNeg, x)))), to);
  }
};

struct SiluBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self), one = f.number(1.0);
    const Node s = f.div(one, f.add(one, f.apply(Op::kExp, f.apply(Op::kNeg, x))));
    f.store(f.mul(f.mul(g, s), f.add(one, f.mul(x, f.sub(one, s)))), to);
  }
};

/// 0.5 x (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for erf.
struct Gelu {
  static constexpr double kBeta = M_SQRT2 * M_2_SQRTPI * 0.5, kKappa = 0.044715;

  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self,
                   std::string_view approximate) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self), one = f.number(1.0), half = f.number(0.5);
    if (at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh) {
      const Node cube = f.mul(f.mul(x, x), x);
      const Node inner = f.mul(f.number(kBeta), f.add(x, f.mul(f.number(kKappa), cube)));
      f.store(f.mul(f.mul(half, x), f.add(one, f.apply(Op::kTanh, inner))), to);
    } else if (f.common() == fusion::DType::kBFloat16) {
      f.store(f.mul(x, f.apply(Op::kNormalCdf, x)), to);
    } else {
      const Node erf = f.apply(Op::kErf, f.mul(x, f.number(M_SQRT1_2)));
      f.store(f.mul(f.mul(half, x), f.add(one, erf)), to);
    }
  }
};

struct GeluBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self,
                   std::string_view approximate) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self), one = f.number(1.0), half = f.number(0.5);
    if (at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh) {
      const Node square = f.mul(x, x);
      const Node beta = f.number(Gelu::kBeta);
      const Node inner = f.mul(beta, f.add(x, f.mul(f.number(Gelu::kKappa), f.mul(square, x))));
      const Node tanh = f.apply(Op::kTanh, inner);
      const Node left = f.mul(half, x);
      const Node slope = f.mul(beta, f.add(one, f.mul(f.number(3 * Gelu::kKappa), square)));
      const Node right = f.mul(f.mul(left, f.sub(one, f.mul(tanh, tanh))), slope);
      f.store(f.mul(g, f.add(f.mul(half, f.add(one, tanh)), right)), to);
    } else {
      const Node cdf =
          f.common() == fusion::DType::kBFloat16
              ? f.apply(Op::kNormalCdf, x)
              : f.mul(half, f.add(one, f.apply(Op::kErf, f.mul(x, f.number(M_SQRT1_2)))));
      const Node gauss = f.apply(Op::kExp, f.mul(f.mul(x, x), f.number(-0.5)));
      const Node pdf = f.mul(f.number(M_2_SQRTPI * M_SQRT1_2 * 0.5), gauss);
      f.store(f.mul(g, f.add(cdf, f.mul(x, pdf))), to);
    }
  }
};

/// log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
struct Softplus {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& beta,
                   const Scalar& threshold) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self), factor = f.number(beta);
    const Node scaled = f.mul(x, factor);
    const Node soft = f.div(f.apply(Op::kLog1p, f.apply(Op::kExp, scaled)), factor);
    f.store(f.where(f.apply(Op::kGt, scaled, f.number(threshold)), x, soft), to);
  }
};

struct SoftplusBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Tensor& self,
                   const Scalar& beta, const Scalar& threshold) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self);
    const Node scaled = f.mul(x, f.number(beta));
    const Node z = f.apply(Op::kExp, scaled);
    const Node soft = f.div(f.mul(g, z), f.add(z, f.number(1.0)));
    f.store(f.where(f.apply(Op::kGt, scaled, f.number(threshold)), g, soft), to);
  }
};

/// x tanh(log(1 + exp(x))).
struct Mish {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self);
    f.store(f.mul(x, f.apply(Op::kTanh, f.apply(Op::kLog1p, f.apply(Op::kExp, x)))), to);
  }
};

/// x scale where x >= 0, else alpha scale expm1(input_scale x): elu, selu and celu.
struct Elu {
  struct Factors {
    Factors(FusedOperator& f, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale)
        : negative(f.number(product(f, alpha, scale))),
          positive(f.number(scale)),
          input(f.number(input_scale)) {}

    Node negative, positive, input;

   private:
    /// In the precision of the computation, as ATen multiplies them.
    static double product(const FusedOperator& f, const Scalar& alpha, const Scalar& scale) {
      if (f.common() == fusion::DType::kDouble) return alpha.to<double>() * scale.to<double>();
      return alpha.to<float>() * scale.to<float>();
    }
  };

  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Scalar& alpha,
                   const Scalar& scale, const Scalar& input_scale) {
    if (!f.floating()) return f.give_up();
    const Node x = f.load(self);
    const Factors factors(f, alpha, scale, input_scale);
    const Node below = f.mul(f.apply(Op::kExpm1, f.mul(x, factors.input)), factors.negative);
    const Node above = f.mul(x, factors.positive);
    f.store(f.where(f.apply(Op::kGe, x, f.number(0.0)), above, below), to);
  }
};

struct EluBackward {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& grad, const Scalar& alpha,
                   const Scalar& scale, const Scalar& input_scale, bool is_result,
                   const Tensor& self_or_result) {
    if (!f.floating()) return f.give_up();
    const Node g = f.load(grad), x = f.load(self_or_result);
    const Elu::Factors factors(f, alpha, scale, input_scale);
    const Node inner = f.mul(g, factors.input);
    const Node below = is_result ? f.mul(inner, f.add(x, factors.negative))
                                 : f.mul(f.mul(inner, factors.negative),
                                         f.apply(Op::kExp, f.mul(x, factors.input)));
    const Node above = f.mul(g, factors.positive);
    f.store(f.where(f.apply(Op::kGt, x, f.number(0.0)), above, below), to);
  }
};

}  // namespace loom::ops::recipe

namespace loom::ops {

/// The two halves along a dimension, of a tensor that has an even number there.
struct Halves {
  Halves(const at::Tensor& self, std::int64_t dim)
      : first(self.narrow(dim, 0, self.size(dim) / 2)),
        second(self.narrow(dim, self.size(dim) / 2, self.size(dim) / 2)) {}

  at::Tensor first, second;
};

/// glu: (self, dim), the first half times the sigmoid of the second.
template <class Base>
struct FusedGlu : Base {
  static constexpr bool kFuses = true;
  static constexpr bool kCommonIsOutput = false;

  static bool fuse(const char* name, c10::ScalarType common,
                   const std::array<at::Tensor, 1>& outputs, const at::Tensor& self,
                   std::int64_t dim) {
    FusedOperator f(name, common);
    if (!f.possible() || !f.floating()) return false;
    const Halves halves(self, dim);
    const auto value = f.load(halves.first);
    f.store(f.mul(value, recipe::logistic(f, f.load(halves.second))), outputs[0]);
    return f.record(outputs[0].device());
  }
};

}  // namespace loom::ops
