// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Recipes of activations that are made of exp and log1p. Formulas are those of ATen's CPU kernels.
// Thread: any.

#include "loom/ops/policy/fused.h"

namespace loom::ops::recipe {

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

}  // namespace loom::ops::recipe
