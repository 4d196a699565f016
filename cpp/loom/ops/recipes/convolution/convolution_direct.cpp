// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/convolution/convolution_direct.h"

#include "loom/ops/cuts/convolution_cut.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/convolution/convolution_blocks.h"
#include "loom/ops/recipes/product/convolve.h"
#include "loom/ops/recipes/product/winograd.h"

#include <c10/util/BFloat16.h>

namespace loom::ops {
namespace {

ConvolutionParameters parameters_of(const Windows& windows) {
  const WindowAxis &y = windows.y, &x = windows.x;
  return {{y.stride, x.stride}, {y.padding, x.padding}, {y.dilation, x.dilation}, {0, 0}};
}

void convolve_by_blocks(Grid& grid, const TensorRef& result, const TensorRef& images,
                        const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  convolve_blocks(grid, result, images, weights, bias, parameters_of(windows),
                  cut_forward(result.alias(), images.alias(), weights.alias(), false, 1),
                  windows.channels_last);
}

// oneDNN may multiply infinities with the padding.
template <class T>
void mend(Grid& grid, const TensorRef& result, const TensorRef& images, const TensorRef& weights,
          const TensorRef& bias, const Windows& windows, bool turned, bool weights_last) {
  const std::int64_t filters = result.sizes()[1], plane = windows.result_plane();
  using Element = Stored<T>;
  const Convolution<Element> direct{elements<Element>(result),
                                    elements<Element>(images),
                                    elements<Element>(weights),
                                    elements<Element>(bias),
                                    filters,
                                    turned,
                                    weights_last,
                                    windows};
  grid.run_by_any(windows.images, [&](std::int64_t image) {
    direct.mend({image * plane, (image + 1) * plane}, {0, filters});
  });
}

bool channels_last(const TensorRef& weights) { return weights.strides()[1] == 1; }

template <class T>
void gradient_by_blocks(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                        const TensorRef& weights, const Windows& windows, bool weights_last) {
  // The images' values are not looked at: their gradient has their sizes.
  convolve_backward_blocks(
      grid, result, TensorRef(), TensorRef(), gradient, result, weights,
      parameters_of(turned_windows(windows, result.sizes()[1])),
      cut_backward(gradient.alias(), result.alias(), weights.alias(), false, 1, false));
  mend<T>(grid, result, gradient, weights, TensorRef(), windows, true, weights_last);
}

}  // namespace

void convolve_directly(Grid& grid, const TensorRef& result, const TensorRef& images,
                       const TensorRef& weights, const TensorRef& bias, const Windows& windows) {
  convolve_by_blocks(grid, result, images, weights, bias, windows);
  mend<float>(grid, result, images, weights, bias, windows, false, channels_last(weights));
}

void image_gradient_directly(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                             const TensorRef& weights, const Windows& windows) {
  gradient_by_blocks<float>(grid, result, gradient, weights, windows, channels_last(weights));
}

void image_gradient_directly_bfloat16(Grid& grid, const TensorRef& result,
                                      const TensorRef& gradient, const TensorRef& weights,
                                      const Windows& windows, bool weights_last) {
  gradient_by_blocks<c10::BFloat16>(grid, result, gradient, weights, windows, weights_last);
}

void convolve_strided_directly(Grid& grid, const TensorRef& result, const TensorRef& images,
                               const TensorRef& weights, const TensorRef& bias,
                               const Windows& windows, bool weights_last) {
  // Columns are made for operands that all lie alike.
  if (windows.channels_last == weights_last) {
    return convolve_columns(grid, result, images, weights, bias, windows);
  }
  convolve_by_blocks(grid, result, images, weights, bias, windows);
}

}  // namespace loom::ops
