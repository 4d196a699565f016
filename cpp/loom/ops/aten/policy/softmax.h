// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of softmax, log-softmax and their gradients: kernels of our own for dense rows, ATen's for
// the others, cut along the dimensions before the one that they sum over. Thread: any.

#include "loom/ops/aten/structured.h"
#include "loom/ops/recipes/rows/softmax.h"

#include <c10/core/WrapDimMinimal.h>
#include <c10/util/accumulate.h>

namespace loom::ops {

template <bool kLog>
struct Softmax {
  static constexpr bool kProbesDtypes = true;
  static constexpr bool kMayCoincide = true;

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t dim, bool half_to_float) {
    if (launch_row_softmax(name, kLog, outputs[0], self, dim)) return;
    const auto cut = [&](auto split, std::int64_t dim_of_block) {
      launch_cpu<kCpu>(name, split, outputs, self, dim_of_block, half_to_float);
    };
    choose(outputs[0], dim, self.is_contiguous(), cut);
  }

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& grad, const at::Tensor& output, std::int64_t dim,
                     at::ScalarType input_dtype) {
    if (launch_row_softmax_gradient(name, kLog, outputs[0], grad, output, dim)) return;
    const auto cut = [&](auto split, std::int64_t dim_of_block) {
      launch_cpu<kCpu>(name, split, outputs, grad, output, dim_of_block, input_dtype);
    };
    choose(outputs[0], dim, grad.is_contiguous() && output.is_contiguous(), cut);
  }

 private:
  // The kernels write contiguous outputs only, so a block must be contiguous, too.
  template <class Cut>
  static void choose(const at::Tensor& result, std::int64_t dim, bool inputs_contiguous,
                     const Cut& cut) {
    dim = c10::maybe_wrap_dim(dim, result.dim());
    const auto sizes = result.sizes();
    if (dim == 0 || result.numel() == 0 || !result.is_contiguous()) {
      cut(Whole{}, dim);
    } else if (inputs_contiguous) {
      const auto rows = c10::multiply_integers(sizes.slice(0, dim));
      cut(Rows{.leading = static_cast<std::int8_t>(dim), .cut = 7, .cost = row_cost(result, rows)},
          1);
    } else {
      cut(Along{.dims = {0, 0, 0}, .cost = row_cost(result, sizes[0])}, dim);
    }
  }

  static constexpr double kElementCost = 6;

  static double row_cost(const at::Tensor& result, std::int64_t rows) {
    return kElementCost * static_cast<double>(result.numel()) / static_cast<double>(rows);
  }
};

}  // namespace loom::ops
