// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of reductions that may be done in parts: sums, means, extrema and logic. Thread: any.

#include "loom/ops/reduce_in_parts.h"
#include "loom/ops/rows/channel_sums.h"
#include "loom/ops/structured.h"

#include <ATen/ops/all_cpu_dispatch.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amax_cpu_dispatch.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/amin_cpu_dispatch.h>
#include <ATen/ops/any_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum_cpu_dispatch.h>

namespace loom::ops {

struct Sum {
  static bool launch_own(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced) {
    return launch_channel_sums(name, result, self, reduced, /*mean=*/false);
  }
  static c10::ScalarType accumulator(c10::ScalarType dtype) {
    return c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype;
  }
  static void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) {
    at::cpu::sum_outf(in, dims, keepdim, to.scalar_type(), to);
  }
  static void combine(const at::Tensor& parts, double, at::Tensor& to) {
    at::cpu::sum_outf(parts, c10::IntArrayRef{0}, false, to.scalar_type(), to);
  }
};

struct Mean : Sum {
  static bool launch_own(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced) {
    return launch_channel_sums(name, result, self, reduced, /*mean=*/true);
  }
  static void combine(const at::Tensor& parts, double reduced_elements, at::Tensor& to) {
    at::Tensor sum = at::empty(to.sizes(), parts.options());
    Sum::combine(parts, reduced_elements, sum);
    at::cpu::div_outf(sum, at::scalar_tensor(reduced_elements, at::kDouble), to);
  }
};

template <auto kCpu>
struct Extremum {
  static c10::ScalarType accumulator(c10::ScalarType dtype) { return dtype; }
  static void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) {
    kCpu(in, dims, keepdim, to);
  }
  static void combine(const at::Tensor& parts, double, at::Tensor& to) {
    kCpu(parts, {0}, false, to);
  }
};

using LogicFunction = at::Tensor&(const at::Tensor&, at::OptionalIntArrayRef, bool, at::Tensor&);
template <LogicFunction* kCpu>
struct Logic {
  static c10::ScalarType accumulator(c10::ScalarType dtype) { return dtype; }
  static void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) {
    kCpu(in, dims, keepdim, to);
  }
  static void combine(const at::Tensor& parts, double, at::Tensor& to) {
    kCpu(parts, c10::IntArrayRef{0}, false, to);
  }
};

/// Policy of reductions over several dimensions. kCost is that of one element.
template <class Reduction, int kCost>
struct InParts {
  static constexpr bool kProbesDtypes = true;

  // (self, dims, keepdim, ...)
  template <auto kCpu, class Dims, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, const Dims& dims, bool keepdim, const More&... more) {
    const Reduced reduced = reduced_dims(self, dims, keepdim);
    if constexpr (requires { Reduction::launch_own; }) {
      if (Reduction::launch_own(name, outputs[0], self, reduced)) return;
    }
    if (const auto chunks = cut_reduced(self, reduced, kCost)) {
      launch_in_parts(name, Reduction{}, outputs[0], self, *chunks, reduced);
    } else {
      launch_cpu<kCpu>(name, cut_kept(self, reduced, 1, kCost), outputs, self, dims, keepdim,
                       more...);
    }
  }

  // (self)
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self) {
    const Reduced reduced = reduced_dims(self, std::nullopt, false);
    if (const auto chunks = cut_reduced(self, reduced, kCost)) {
      launch_in_parts(name, Reduction{}, outputs[0], self, *chunks, reduced);
    } else {
      launch_cpu<kCpu>(name, Whole{}, outputs, self);
    }
  }
};

using Amax = Extremum<at::cpu::amax_outf>;
using Amin = Extremum<at::cpu::amin_outf>;
using Any = Logic<at::cpu::any_outf>;
using All = Logic<at::cpu::all_outf>;

}  // namespace loom::ops
