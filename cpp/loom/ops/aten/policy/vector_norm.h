// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of vector norms, which may be done in parts. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/cuts/reduce_in_parts.h"
#include "loom/ops/recipes/rows/all_elements.h"

#include <ATen/DimVector.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>

namespace loom::ops {

/// A norm of norms is the norm, whatever the order, but for 0 (which counts).
struct Norm {
  at::Scalar order;

  /// Norms of parts of half types are float32: the kernel does not write narrower ones of those.
  static c10::ScalarType accumulator(c10::ScalarType dtype) {
    return c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype;
  }
  void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) const {
    const bool complex = in.is_complex();
    const auto dtype = complex ? c10::toComplexType(to.scalar_type()) : to.scalar_type();
    const at::Tensor from = c10::isReducedFloatingType(in.scalar_type()) ? in.to(dtype) : in;
    at::cpu::linalg_vector_norm_outf(from, order, dims, keepdim, dtype, to);
  }
  void combine(const at::Tensor& parts, double, at::Tensor& to) const {
    const at::DimVector first{0};
    if (parts.scalar_type() == to.scalar_type()) {
      at::cpu::linalg_vector_norm_outf(parts, order, first, false, parts.scalar_type(), to);
    } else {
      to.copy_(at::cpu::linalg_vector_norm(parts, order, c10::IntArrayRef(first)));
    }
  }
};

/// Norms as reductions of magnitudes, which become programs, where ATen's kernel goes through
/// elements one by one: those of any order but 1 and 2, and of rows.
class NormOfMagnitudes {
 public:
  NormOfMagnitudes(const at::Tensor& self, double order, at::OptionalIntArrayRef dims, bool keepdim)
      : self_(self),
        order_(order),
        dims_(dims && !dims->empty() ? *dims : c10::IntArrayRef()),
        keepdim_(keepdim) {
    if (dims_.empty()) {
      for (std::int64_t d = 0; d < self.dim(); ++d) all_.push_back(d);
      dims_ = all_;
    }
  }

  [[nodiscard]] bool suits(const at::Tensor& result) const {
    const c10::ScalarType dtype = self_.scalar_type();
    if (order_ == 0 || self_.numel() < kFewest || self_.numel() > kMost || self_.dim() == 0 ||
        (result.scalar_type() == c10::kDouble && dtype != c10::kDouble) ||
        (dtype != c10::kFloat && dtype != c10::kDouble && !is_half())) {
      return false;
    }
    if (order_ == 2 && static_cast<std::int64_t>(dims_.size()) == self_.dim()) return false;
    return (order_ != 1 && order_ != 2) || is_of_rows();
  }

  void run(const at::Tensor& to) const {
    at::Tensor result = to;
    if (order_ == 1 && result.scalar_type() == self_.scalar_type()) {
      at::sum_out(result, at::abs(self_), dims_, keepdim_);
      return;
    }
    if (std::isinf(order_)) {
      const at::Tensor magnitudes = at::abs(self_);
      result.copy_(order_ > 0 ? at::amax(magnitudes, dims_, keepdim_)
                              : at::amin(magnitudes, dims_, keepdim_));
      return;
    }
    const at::Tensor from = in_its_range();
    if (order_ == 1) {
      result.copy_(at::sum(at::abs(from), dims_, keepdim_));
    } else if (order_ == 2) {
      result.copy_(at::sqrt(at::sum(at::mul(from, from), dims_, keepdim_)));
    } else {
      const at::Tensor powers = at::pow(at::abs(from), order_);
      result.copy_(at::pow(at::sum(powers, dims_, keepdim_), 1 / order_));
    }
  }

 private:
  // Fewer take less time than it takes to call some operators.
  static constexpr std::int64_t kFewest = 8192;
  // Magnitudes and powers of more would be a lot of memory to reserve.
  static constexpr std::int64_t kMost = 16 << 20;

  [[nodiscard]] bool is_half() const { return c10::isReducedFloatingType(self_.scalar_type()); }
  /// Powers of half types may be out of their range where norms are not.
  [[nodiscard]] at::Tensor in_its_range() const {
    return is_half() ? self_.to(c10::kFloat) : self_;
  }
  [[nodiscard]] bool is_of_rows() const {
    const auto is_last = [&](std::int64_t dim) {
      return at::maybe_wrap_dim(dim, self_.dim()) == self_.dim() - 1;
    };
    return self_.is_contiguous() && std::any_of(dims_.begin(), dims_.end(), is_last);
  }

  at::Tensor self_;
  double order_;
  at::DimVector all_;
  c10::IntArrayRef dims_;
  bool keepdim_;
};

struct VectorNorm {
  static constexpr bool kProbesDtypes = true;
  static constexpr double kCost = 2;

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, const at::Scalar& order, at::OptionalIntArrayRef dims,
                     bool keepdim, std::optional<at::ScalarType> dtype) {
    if (order.toDouble() == 2 && outputs[0].numel() == 1 && self.numel() > 1 &&
        launch_norm_of_all(name, outputs[0], self)) {
      return;
    }
    if (const NormOfMagnitudes norm(self, order.toDouble(), dims, keepdim);
        norm.suits(outputs[0])) {
      return norm.run(outputs[0]);
    }
    const Reduced reduced = reduced_dims(self, dims, keepdim);
    const bool in_parts =
        order.toDouble() != 0 && (outputs[0].scalar_type() == self.scalar_type() ||
                                  !c10::isReducedFloatingType(outputs[0].scalar_type()));
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
