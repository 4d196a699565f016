// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The table behind vector_function(): included once for each instruction set.

#include "loom/fusion/simd_functions.h"
#include "loom/fusion/vector_math_impl.h"

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

template <Op op, class Vector>
Vector call_unary(Vector a) {
  return VectorMath<op>::apply(a);
}
template <Op op, class Vector>
Vector call_binary(Vector a, Vector b) {
  return VectorMath<op>::apply(a, b);
}

template <Op op, class Vector>
VectorFunction function_of() {
  if constexpr (VectorMath<op>::kOperands == 1) {
    return reinterpret_cast<VectorFunction>(&call_unary<op, Vector>);
  } else if constexpr (VectorMath<op>::kOperands == 2) {
    return reinterpret_cast<VectorFunction>(&call_binary<op, Vector>);
  } else {
    return nullptr;
  }
}

template <class Vector>
VectorFunction find_vector_function(Op op) {
  switch (op) {
#define LOOM_CASE(op, name, float_suffix, double_suffix) \
  case Op::op:                                           \
    return function_of<Op::op, Vector>();
    LOOM_SLEEF_UNARY(LOOM_CASE)
    LOOM_SLEEF_ANGLE(LOOM_CASE)
    LOOM_SLEEF_HYPERBOLIC(LOOM_CASE)
    LOOM_SLEEF_BINARY(LOOM_CASE)
    LOOM_SLEEF_REMAINDER(LOOM_CASE)
#undef LOOM_CASE
    case Op::kNormalCdf:
      return function_of<Op::kNormalCdf, Vector>();
    default:
      return nullptr;
  }
}

VectorFunction find_vector_function(Op op, Type type) {
  if (type == Type::kFloat) return find_vector_function<FloatVector>(op);
  if (type == Type::kDouble) return find_vector_function<DoubleVector>(op);
  return nullptr;
}

}  // namespace
}  // namespace loom::fusion
