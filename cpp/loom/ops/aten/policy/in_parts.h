// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of reductions that may be done in parts: sums, means, extrema and logic. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/cuts/reduce_in_parts.h"
#include "loom/ops/recipes/rows/all_elements.h"
#include "loom/ops/recipes/rows/channel_sums.h"
#include "loom/ops/recipes/rows/extremum_places.h"
#include "loom/ops/recipes/rows/middle_sums.h"
#include "loom/ops/recipes/rows/products.h"

#include <ATen/ops/all_cpu_dispatch.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amax_cpu_dispatch.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/amin_cpu_dispatch.h>
#include <ATen/ops/aminmax_cpu_dispatch.h>
#include <ATen/ops/any_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hash_tensor_cpu_dispatch.h>
#include <ATen/ops/prod_cpu_dispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <algorithm>
#include <type_traits>

namespace loom::ops {

struct Sum {
  static bool launch_own(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced) {
    return launch_channel_sums(name, result, self, reduced, /*mean=*/false) ||
           launch_middle_sums(name, result, self, reduced, /*mean=*/false) ||
           (result.numel() == 1 && launch_sum_of_all(name, result, self, SumOfAll::kSum));
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
    return launch_channel_sums(name, result, self, reduced, /*mean=*/true) ||
           launch_middle_sums(name, result, self, reduced, /*mean=*/true) ||
           (result.numel() == 1 && launch_sum_of_all(name, result, self, SumOfAll::kMean));
  }
  static void combine(const at::Tensor& parts, double reduced_elements, at::Tensor& to) {
    at::Tensor sum = at::empty(to.sizes(), parts.options());
    Sum::combine(parts, reduced_elements, sum);
    at::cpu::div_outf(sum, at::scalar_tensor(reduced_elements, at::kDouble), to);
  }
};

struct Prod {
  static bool launch_own(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced) {
    return launch_products(name, result, self, reduced);
  }
  static c10::ScalarType accumulator(c10::ScalarType dtype) { return Sum::accumulator(dtype); }
  static void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) {
    if (dims.size() == 1) {
      at::cpu::prod_outf(in, dims[0], keepdim, to.scalar_type(), to);
    } else {  // all of them
      to.copy_(at::cpu::prod(in.flatten(), 0, false, to.scalar_type()));
    }
  }
  static void combine(const at::Tensor& parts, double, at::Tensor& to) {
    at::cpu::prod_outf(parts, 0, false, to.scalar_type(), to);
  }
};

/// Of the bits of the elements, which are reduced by an exclusive or.
struct Hash {
  static c10::ScalarType accumulator(c10::ScalarType dtype) { return dtype; }
  static void part(const at::Tensor& in, c10::IntArrayRef dims, bool keepdim, at::Tensor& to) {
    at::cpu::hash_tensor_outf(in, dims, keepdim, /*mode=*/0, to);
  }
  static void combine(const at::Tensor& parts, double, at::Tensor& to) {
    // The kernel takes no unsigned numbers, but makes them.
    at::cpu::hash_tensor_outf(parts.view(at::kLong), {0}, false, /*mode=*/0, to);
  }
};

template <auto kCpu, bool kMost>
struct Extremum {
  // Of fewer elements to a column places are a lot of memory.
  static constexpr std::int64_t kFewestPlaced = 16;

  static bool launch_own(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced) {
    if (result.scalar_type() != self.scalar_type()) return false;
    if (result.numel() == 1) {
      return launch_extrema_of_all(name, kMost ? at::Tensor() : result,
                                   kMost ? result : at::Tensor(), self);
    }
    // Columns have their places found, too: the kernel of those is faster than one without.
    const at::DimVector dims = reduced.dims(self.dim());
    if (dims.size() != 1 || dims[0] == self.dim() - 1 || self.size(dims[0]) < kFewestPlaced ||
        result.numel() == 0) {
      return false;
    }
    const at::Tensor places = empty(result.sizes(), c10::kLong, self.device());
    return launch_extremum_places(name, result, places, self, dims[0], kMost);
  }
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
      launch_cpu<kCpu>(name, cut_kept(self, reduced, 1, kept_cost(self, reduced)), outputs, self,
                       dims, keepdim, more...);
    }
  }

  // prod: (self, dim, keepdim, ...)
  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t dim, bool keepdim, const More&... more) {
    const Reduced reduced = reduced_dim(self, dim, keepdim);
    if constexpr (requires { Reduction::launch_own; }) {
      if (Reduction::launch_own(name, outputs[0], self, reduced)) return;
    }
    if (const auto chunks = cut_reduced(self, reduced, kCost)) {
      launch_in_parts(name, Reduction{}, outputs[0], self, *chunks, reduced);
    } else {
      launch_cpu<kCpu>(name, cut_kept(self, reduced, 1, kept_cost(self, reduced)), outputs, self,
                       dim, keepdim, more...);
    }
  }

  // (self), (self, dtype)
  template <auto kCpu, class... Dtype>
    requires(sizeof...(Dtype) < 2)
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, const Dtype&... dtype) {
    const Reduced reduced = reduced_dims(self, std::nullopt, false);
    if constexpr (requires { Reduction::launch_own; }) {
      if (Reduction::launch_own(name, outputs[0], self, reduced)) return;
    }
    if (const auto chunks = cut_reduced(self, reduced, kCost)) {
      launch_in_parts(name, Reduction{}, outputs[0], self, *chunks, reduced);
    } else {
      launch_cpu<kCpu>(name, Whole{}, outputs, self, dtype...);
    }
  }

 private:
  /// ATen's loops over floating-point numbers are vectors, of rows and of columns, if these are not
  /// short: where each element of a result has a loop of its own, that costs, too. Columns are
  /// vectors of sums only.
  static double kept_cost(const at::Tensor& self, Reduced reduced) {
    constexpr double kLoop = 20, kElement = 5;
    const c10::ScalarType dtype = self.scalar_type();
    const bool wide = dtype == c10::kFloat || dtype == c10::kDouble;
    const double cost = wide ? 0.5 * kCost : kCost;
    const ReducedRuns runs = reduced_runs(self, reduced);
    if (runs.innermost_is_kept && !std::is_base_of_v<Sum, Reduction>) {
      return std::max(cost, wide ? kElement : 2 * kElement);
    }
    return runs.are_short ? cost + kLoop / static_cast<double>(runs.reduced) : cost;
  }
};

/// aminmax: (self, dim, keepdim), two reductions in one pass.
struct BothExtrema {
  static constexpr bool kProbesDtypes = true;
  static constexpr double kCost = 1;

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, std::optional<std::int64_t> dim, bool keepdim) {
    const Reduced reduced =
        dim ? reduced_dim(self, *dim, keepdim) : reduced_dims(self, std::nullopt, keepdim);
    if (!dim && launch_extrema_of_all(name, outputs[0], outputs[1], self)) return;
    const auto chunks = dim ? std::nullopt : cut_reduced(self, reduced, kCost);
    if (!chunks) {
      return launch_cpu<kCpu>(name, cut_kept(self, reduced, 2, kCost), outputs, self, dim, keepdim);
    }
    ops::launch(name, Custom{}, of_all, out(outputs[0]), out(outputs[1]), self, *chunks);
  }

 private:
  static void of_all(Grid& grid, const TensorRef& least, const TensorRef& most,
                     const TensorRef& input, Chunks chunks) {
    const auto parts =
        at::empty({2, chunks.count()}, c10::TensorOptions(c10::kCPU).dtype(input.dtype()));
    grid.run(chunks.count(), [&](std::int64_t index) {
      at::Tensor low = parts.select(0, 0).select(0, index),
                 high = parts.select(0, 1).select(0, index);
      at::cpu::aminmax_outf(chunks.part(input, index), std::nullopt, false, low, high);
    });
    at::Tensor low = least.alias().as_strided({}, {}), high = most.alias().as_strided({}, {});
    at::cpu::amin_outf(parts.select(0, 0), {}, false, low);
    at::cpu::amax_outf(parts.select(0, 1), {}, false, high);
  }
};

using Amax = Extremum<at::cpu::amax_outf, true>;
using Amin = Extremum<at::cpu::amin_outf, false>;
using Any = Logic<at::cpu::any_outf>;
using All = Logic<at::cpu::all_outf>;

}  // namespace loom::ops
