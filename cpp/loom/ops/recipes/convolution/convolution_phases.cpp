// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/convolution/convolution_phases.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/winograd.h"
#include "loom/ops/recipes/product/winograd_bfloat16.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/constant_pad_nd.h>

namespace loom::ops {
namespace {

/// Whether tiles of 4 x 4 pixels are full but for a fifth. Products of bfloat16 take so little time
/// that emptier ones, and the images' way to and fro, are more.
bool fills_tiles(const Windows& windows) {
  const std::int64_t tiles = ceil_div(windows.y.result, 4) * ceil_div(windows.x.result, 4);
  return 4 * 16 * tiles <= 5 * windows.y.result * windows.x.result;
}

bool suits(const Windows& windows, std::int64_t filters, c10::ScalarType dtype) {
  if (dtype == c10::kBFloat16) {
    return can_multiply<c10::BFloat16>() && suits_winograd_bfloat16(windows, filters) &&
           fills_tiles(windows);
  }
  return dtype == c10::kFloat && can_multiply<float>(ProductsOf::kConvolution) &&
         (windows.channels_last ? suits_winograd_last(windows, filters)
                                : suits_winograd(windows, filters));
}

}  // namespace

std::optional<ImagePhases> ImagePhases::of(const at::Tensor& input, const at::Tensor& weight,
                                           const ConvolutionParameters& p, bool channels_last) {
  if (p.groups != 1 || p.transposed || input.dim() != 4 || input.numel() == 0 ||
      input.scalar_type() != weight.scalar_type()) {
    return std::nullopt;
  }
  ImagePhases made;
  made.channels_last_ = channels_last;
  made.parameters_ = p;
  Windows windows;
  windows.channels = input.size(1);
  windows.channels_last = channels_last;
  for (const int d : {0, 1}) {
    const auto i = static_cast<std::size_t>(d);
    const std::int64_t apart = p.dilation[i], size = input.size(d + 2);
    // Pixels at the same distance from the padding's edge are the same image's.
    if (p.stride[i] != 1 || p.padding[i] % apart != 0) return std::nullopt;
    made.parameters_.padding[i] /= apart;
    made.parameters_.dilation[i] = 1;
    (d == 0 ? made.y_ : made.x_) = apart;
    (d == 0 ? made.more_rows_ : made.more_columns_) = round_up(size, apart) - size;
    WindowAxis& axis = d == 0 ? windows.y : windows.x;
    axis.size = ceil_div(size, apart);
    axis.kernel = weight.size(d + 2);
    axis.stride = axis.dilation = 1;
    axis.padding = made.parameters_.padding[i];
    axis.result = axis.size + 2 * axis.padding - (axis.kernel - 1);
  }
  windows.images = input.size(0) * made.y_ * made.x_;
  if (made.y_ * made.x_ == 1 || windows.y.result < 1 || windows.x.result < 1 ||
      !suits(windows, weight.size(0), input.scalar_type())) {
    return std::nullopt;
  }
  return made;
}

at::DimVector ImagePhases::result_sizes(const at::Tensor& phases, const at::Tensor& weight) const {
  const auto sizes =
      at::native::conv_output_size(phases.sizes(), weight.sizes(), parameters_.padding,
                                   parameters_.stride, parameters_.dilation);
  return {sizes.begin(), sizes.end()};
}

at::Tensor ImagePhases::apart(const at::Tensor& images) const {
  const bool pads = more_rows_ != 0 || more_columns_ != 0;
  const at::Tensor dense = images.contiguous(channels_last_ ? at::MemoryFormat::ChannelsLast
                                                            : at::MemoryFormat::Contiguous);
  const at::Tensor whole =
      pads ? at::constant_pad_nd(dense, {0, more_columns_, 0, more_rows_}, 0) : dense;
  const std::int64_t batch = whole.size(0), channels = whole.size(1);
  const std::int64_t rows = whole.size(2) / y_, columns = whole.size(3) / x_;
  if (!channels_last_) {
    return whole.view({batch, channels, rows, y_, columns, x_})
        .permute({0, 3, 5, 1, 2, 4})
        .reshape({batch * y_ * x_, channels, rows, columns});
  }
  return whole.permute({0, 2, 3, 1})
      .view({batch, rows, y_, columns, x_, channels})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({batch * y_ * x_, rows, columns, channels})
      .permute({0, 3, 1, 2});
}

void ImagePhases::together(const at::Tensor& images, const at::Tensor& phases) const {
  const std::int64_t batch = images.size(0), channels = images.size(1);
  const std::int64_t rows = phases.size(2), columns = phases.size(3);
  // (batch, channels, rows, y, columns, x)
  const at::Tensor pixels = phases.unflatten(0, {batch, y_, x_}).permute({0, 3, 4, 1, 5, 2});
  if (more_rows_ == 0 && more_columns_ == 0) {
    if (channels_last_) {
      images.permute({0, 2, 3, 1})
          .view({batch, rows, y_, columns, x_, channels})
          .copy_(pixels.permute({0, 2, 3, 4, 5, 1}));
    } else {
      images.view({batch, channels, rows, y_, columns, x_}).copy_(pixels);
    }
    return;
  }
  const at::Tensor whole = pixels.reshape({batch, channels, rows * y_, columns * x_});
  images.copy_(whole.narrow(2, 0, images.size(2)).narrow(3, 0, images.size(3)));
}

}  // namespace loom::ops
