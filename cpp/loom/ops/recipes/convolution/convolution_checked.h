// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Gradients of weights whose taps are looked at again: those that are not finite are computed one
// by one (kernels/conv/direct_gradient.h), or by ATen's kernels if they are many. Thread: the
// worker.

#include "loom/kernels/conv/direct_gradient.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/convolution/convolution_blocks.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/magnitudes.h"

#include <cstdint>

namespace loom::ops {

/// What the convolution is to kernels of our own, and to ATen's.
struct CheckedConvolution {
  Windows windows;
  bool weights_last;
  ConvolutionParameters plain;
  ConvolutionCut cut;
};

namespace detail {

/// Computes the elements that are not finite again. Returns false and does nothing if they are
/// many.
template <class T>
bool mend(Grid& grid, const kernels::conv::DirectWeightGradient<T>& direct) {
  const std::int64_t spoilt = direct.spoilt();
  if (2 * spoilt >= direct.filters * direct.windows.rows()) return spoilt == 0;
  if (spoilt > 0) {
    grid.run_by_any(direct.filters, [&](std::int64_t filter) { direct.mend(filter); });
  }
  return true;
}

/// Calls a kernel that is told how the weights lie, or looks for itself.
template <auto kKernel, class... Operand>
void call(Grid& grid, const CheckedConvolution& how, const Operand&... operands) {
  if constexpr (requires { kKernel(grid, operands..., how.windows, how.weights_last); }) {
    kKernel(grid, operands..., how.windows, how.weights_last);
  } else {
    kKernel(grid, operands..., how.windows);
  }
}

}  // namespace detail

/// `kTransforms`: the kernel is not for elements whose magnitudes spread far
/// (product/magnitudes.h).
template <class T, auto kKernel, bool kTransforms>
void weight_gradient_checked(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& images, const TensorRef& weights,
                             const CheckedConvolution& how) {
  using Element = Stored<T>;
  const kernels::conv::DirectWeightGradient<Element> direct{
      elements<Element>(result), elements<Element>(gradient),
      elements<Element>(images), result.sizes()[0],
      how.weights_last,          how.windows};
  bool spread = false;
  if constexpr (kTransforms) spread = weight_gradient_spreads<T>(grid, images, gradient);
  if (!spread) {
    detail::call<kKernel>(grid, how, result, gradient, images);
    if (detail::mend(grid, direct)) return;
  }
  convolve_backward_blocks(grid, TensorRef(), result, TensorRef(), gradient, images, weights,
                           how.plain, how.cut);
  // oneDNN may multiply infinities with the padding. If they are many, that is what they get.
  if (spread) static_cast<void>(detail::mend(grid, direct));
}

}  // namespace loom::ops
