// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of extrema that say where they are. Thread: any.

#include "loom/ops/aten/policy/along_kept.h"
#include "loom/ops/recipes/rows/extremum_places.h"

namespace loom::ops {

template <bool kLargest>
struct Place {
  static constexpr bool kProbesDtypes = true;

  // argmax: (self, dim, keepdim)
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::optional<std::int64_t> dim, bool keepdim) {
    if (launch_extremum_places(name, {}, outputs[0], self, dim, kLargest)) return;
    launch_cpu<kCpu>(name, AlongKept<2>::split(outputs, self, dim, keepdim), outputs, self, dim,
                     keepdim);
  }

  // max.dim: (self, dim, keepdim)
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, std::int64_t dim, bool keepdim) {
    if (launch_extremum_places(name, outputs[0], outputs[1], self, dim, kLargest)) return;
    launch_cpu<kCpu>(name, AlongKept<2>::split(outputs, self, dim, keepdim), outputs, self, dim,
                     keepdim);
  }
};

}  // namespace loom::ops
