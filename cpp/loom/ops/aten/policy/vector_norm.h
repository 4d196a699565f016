// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of vector norms, which may be done in parts. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/cuts/reduce_in_parts.h"

#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>

namespace loom::ops {

/// A norm of norms is the norm, whatever the order, but for 0 (which counts).
struct Norm {
  at::Scalar order;

  static c10::ScalarType accumulator(c10::ScalarType dtype) { return dtype; }
  void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) const {
    const bool complex = in.is_complex();
    const auto dtype = complex ? c10::toComplexType(to.scalar_type()) : to.scalar_type();
    at::cpu::linalg_vector_norm_outf(in, order, dims, keepdim, dtype, to);
  }
  void combine(const at::Tensor& parts, double, at::Tensor& to) const {
    at::cpu::linalg_vector_norm_outf(parts, order, c10::IntArrayRef{0}, false, parts.scalar_type(),
                                     to);
  }
};

struct VectorNorm {
  static constexpr bool kProbesDtypes = true;
  static constexpr double kCost = 2;

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, const at::Scalar& order, at::OptionalIntArrayRef dims,
                     bool keepdim, std::optional<at::ScalarType> dtype) {
    const Reduced reduced = reduced_dims(self, dims, keepdim);
    // A result of a narrower dtype than the partial ones is not something the kernel can write.
    const bool in_parts =
        order.toDouble() != 0 && !c10::isReducedFloatingType(outputs[0].scalar_type());
    const auto chunks = in_parts ? cut_reduced(self, reduced, kCost) : std::nullopt;
    if (chunks) {
      launch_in_parts(name, Norm{order}, outputs[0], self, *chunks, reduced);
    } else {
      launch_cpu<kCpu>(name, cut_kept(self, reduced, 1, kCost), outputs, self, order, dims, keepdim,
                       dtype);
    }
  }
};

}  // namespace loom::ops
