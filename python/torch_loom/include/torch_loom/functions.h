// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Functions of vectors for generated kernels: of float by loom's own formulas, which eager
// operators compute with, too; of other types, and on processors that the formulas are not written
// for, by the vector's own methods. Generated sources include it after kernel.h, which is compiled
// once.

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#define LOOM_KERNEL_HAS_FORMULAS
#if defined(CPU_CAPABILITY_AVX512)
#define LOOM_SIMD_AVX512
#endif
#include <immintrin.h>
#include <loom/fusion/simd_math.h>
#include <loom/fusion/vector_formulas.h>
#endif

namespace loom_kernel {

#if defined(LOOM_KERNEL_HAS_FORMULAS)
template <loom::fusion::Op op>
at::vec::Vectorized<float> formula(const at::vec::Vectorized<float>& x) {
  loom::fusion::SimdMath math;
  const loom::fusion::SimdMath::Vector vector = x;
  return loom::fusion::Formula<op>::apply(math, vector);
}

#define LOOM_KERNEL_FORMULA(name, op)                                                     \
  inline at::vec::Vectorized<float> name(const at::vec::Vectorized<float>& x) {           \
    return formula<loom::fusion::Op::op>(x);                                              \
  }                                                                                       \
  template <int count>                                                                    \
  at::vec::VectorizedN<float, count> name(const at::vec::VectorizedN<float, count>& x) {  \
    return x.unary_op([](const at::vec::Vectorized<float>& part) { return name(part); }); \
  }
#else
#define LOOM_KERNEL_FORMULA(name, op)
#endif

#define LOOM_KERNEL_FUNCTION(name, op) \
  template <class Vector>              \
  Vector name(const Vector& x) {       \
    return x.name();                   \
  }                                    \
  LOOM_KERNEL_FORMULA(name, op)

LOOM_KERNEL_FUNCTION(exp, kExp)
LOOM_KERNEL_FUNCTION(exp2, kExp2)
LOOM_KERNEL_FUNCTION(expm1, kExpm1)
LOOM_KERNEL_FUNCTION(log, kLog)
LOOM_KERNEL_FUNCTION(log2, kLog2)
LOOM_KERNEL_FUNCTION(log1p, kLog1p)
LOOM_KERNEL_FUNCTION(tanh, kTanh)
LOOM_KERNEL_FUNCTION(erf, kErf)

#undef LOOM_KERNEL_FUNCTION
#undef LOOM_KERNEL_FORMULA

template <class Vector>
Vector sigmoid(const Vector& x) {
  return Vector(1) / (Vector(1) + exp(x.neg()));
}

}  // namespace loom_kernel
