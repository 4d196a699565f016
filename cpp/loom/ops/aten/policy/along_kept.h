// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of reductions and scans that are cut along the dimensions that stay. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/cuts/reduce_in_parts.h"
#include "loom/ops/cuts/scan.h"

#include <ATen/MemoryOverlap.h>

namespace loom::ops {

/// Policy of reductions that are cut along kept dimensions only.
template <int kCost>
struct AlongKept {
  static constexpr bool kProbesDtypes = true;

  // (self, dim, keepdim, ...)
  template <std::size_t kOutputs, class Dim, class... More>
  static Along split(const std::array<at::Tensor, kOutputs>&, const at::Tensor& self,
                     const Dim& dim, bool keepdim, const More&...) {
    return cut_kept(self, reduced(self, dim, keepdim), kOutputs, kCost);
  }

  // norm: (self, p, dims, keepdim, ...)
  template <class... More>
  static Along split(const std::array<at::Tensor, 1>&, const at::Tensor& self,
                     const std::optional<at::Scalar>&, at::IntArrayRef dims, bool keepdim,
                     const More&...) {
    return cut_kept(self, reduced_dims(self, dims, keepdim), 1, kCost);
  }

  // var, std: (self, dims, correction, keepdim)
  template <std::size_t kOutputs>
  static Along split(const std::array<at::Tensor, kOutputs>&, const at::Tensor& self,
                     at::OptionalIntArrayRef dims, const std::optional<at::Scalar>&, bool keepdim) {
    return cut_kept(self, reduced_dims(self, dims, keepdim), kOutputs, kCost);
  }

 private:
  static Reduced reduced(const at::Tensor& self, std::int64_t dim, bool keepdim) {
    return reduced_dim(self, dim, keepdim);
  }
  static Reduced reduced(const at::Tensor& self, std::optional<std::int64_t> dim, bool keepdim) {
    return dim ? reduced_dim(self, *dim, keepdim) : reduced_dims(self, std::nullopt, keepdim);
  }
};

/// Policy of scans: the result has the shape of the input.
template <bool kProduct>
struct Scan {
  static constexpr bool kProbesDtypes = true;
  static constexpr bool kMayCoincide = true;

  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t dim, const More&... more) {
    // As the kernel, whose aliases have a storage each.
    at::assert_no_internal_overlap(outputs[0]);
    at::assert_no_partial_overlap(outputs[0], self);
    if (launch_scan(name, outputs[0], self, dim, kProduct)) return;
    launch_cpu<kCpu>(name, cut_kept(self, reduced_dim(self, dim, /*keepdim=*/true), 1, /*cost=*/4),
                     outputs, self, dim, more...);
  }
};

}  // namespace loom::ops
