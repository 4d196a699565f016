// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Gradients of weights whose taps are looked at again: those that are not finite are computed one
// by one (product/direct_gradient.h), or by ATen's kernels if they are many. Thread: the worker.

#include "loom/ops/recipes/convolution/convolution_blocks.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/direct_gradient.h"
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

template <class T>
T* elements_of(const TensorRef& tensor) {
  return tensor.defined() ? reinterpret_cast<T*>(tensor.data()) : nullptr;
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
  const DirectWeightGradient<T> direct{detail::elements_of<T>(result),
                                       detail::elements_of<T>(gradient),
                                       detail::elements_of<T>(images),
                                       result.sizes()[0],
                                       how.weights_last,
                                       how.windows};
  bool spread = false;
  if constexpr (kTransforms) spread = weight_gradient_spreads<T>(grid, images, gradient);
  if (!spread) {
    detail::call<kKernel>(grid, how, result, gradient, images);
    if (direct.mend(grid)) return;
  }
  convolve_backward_blocks(grid, TensorRef(), result, TensorRef(), gradient, images, weights,
                           how.plain, how.cut);
  // oneDNN may multiply infinities with the padding. If they are many, that is what they get.
  if (spread) static_cast<void>(direct.mend(grid));
}

}  // namespace loom::ops
