// SPDX-License-Identifier: BSD-3-Clause
// Images and volumes: sampling, columns of windows, pooling, padding. A rule for them
// knows layouts that say by themselves what the kernel makes of them: contiguous ones, and channels
// last where the kernel follows the suggested format.
#include "loom/ops/meta/rule.h"

#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/Pool.h>
#include <ATen/native/im2col_shape_check.h>
#include <c10/core/MemoryFormat.h>

#include <array>

namespace loom::ops::inference {
namespace {

constexpr std::int64_t kModes = 3;  // of interpolation, and of padding

/// `count` numbers, of which one stands for all.
template <std::size_t count>
std::array<std::int64_t, count> numbers(const c10::IValue& value) {
  const at::DimVector given = value.toDimVector();
  TORCH_CHECK(given.size() == count || given.size() == 1);
  std::array<std::int64_t, count> all{};
  for (std::size_t i = 0; i < count; ++i) all[i] = given.size() == 1 ? given[0] : given[i];
  return all;
}

bool same_floating(const at::Tensor& a, const at::Tensor& b) {
  return is_floating(a.scalar_type()) && a.scalar_type() == b.scalar_type();
}

Geometry contiguous(const at::Tensor& like) { return {like.scalar_type(), like.sizes()}; }

/// In the memory format that `like` suggests; as resize_() makes it.
Geometry suggested(const at::Tensor& like, c10::IntArrayRef sizes) {
  Geometry geometry(like.scalar_type(), sizes);
  const c10::MemoryFormat format = like.suggest_memory_format();
  if (format == c10::MemoryFormat::ChannelsLast) {
    geometry.strides = at::DimVector(c10::get_channels_last_strides_2d(sizes));
  } else if (format == c10::MemoryFormat::ChannelsLast3d) {
    geometry.strides = at::DimVector(c10::get_channels_last_strides_3d(sizes));
  }
  return geometry;
}

/// All dimensions but the last `count`, then others.
at::DimVector replaced(const at::Tensor& tensor, std::int64_t count, c10::IntArrayRef others) {
  at::DimVector sizes(tensor.sizes().slice(0, tensor.dim() - count));
  sizes.append(others.begin(), others.end());
  return sizes;
}

// --- grid_sample: (input, grid, interpolation, padding, align_corners) -------------------------

/// The sizes of the result; throws, or returns nothing, if the kernel would refuse.
std::optional<at::DimVector> sampled_sizes(const at::Tensor& input, const at::Tensor& grid,
                                           std::int64_t mode, std::int64_t padding, bool volumes) {
  at::native::check_grid_sampler_common(input, grid);
  if (volumes) {
    at::native::check_grid_sampler_3d(input, grid, mode);
  } else {
    at::native::check_grid_sampler_2d(input, grid);
  }
  const bool known = mode >= 0 && mode < kModes && padding >= 0 && padding < kModes;
  if (!known || !is_real(input.scalar_type()) || !same_floating(input, grid)) return std::nullopt;
  at::DimVector sizes(input.sizes().slice(0, 2));
  const c10::IntArrayRef places = grid.sizes().slice(1, grid.dim() - 2);
  sizes.append(places.begin(), places.end());
  return sizes;
}

Inferred sampled(Arguments arguments, bool volumes) {
  const at::Tensor& input = tensor_at(arguments, 0);
  const auto sizes = sampled_sizes(input, tensor_at(arguments, 1), arguments[2].toInt(),
                                   arguments[3].toInt(), volumes);
  if (!sizes) return std::nullopt;
  return {{Geometry(input.scalar_type(), *sizes)}};
}

// (grad_output, input, grid, interpolation, padding, align_corners, output_mask)
Inferred sampled_backward(Arguments arguments, bool volumes) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &input = tensor_at(arguments, 1),
                   &grid = tensor_at(arguments, 2);
  const auto sizes =
      sampled_sizes(input, grid, arguments[3].toInt(), arguments[4].toInt(), volumes);
  if (!sizes || !same_floating(gradient, input) || gradient.sizes() != c10::IntArrayRef(*sizes)) {
    return std::nullopt;
  }
  const bool wants_input = arguments[6].toBoolList().get(0);
  return {{wants_input ? contiguous(input) : Geometry::absent(), contiguous(grid)}};
}

}  // namespace

Inferred grid_sampler_2d(Arguments arguments) { return sampled(arguments, /*volumes=*/false); }
Inferred grid_sampler_3d(Arguments arguments) { return sampled(arguments, /*volumes=*/true); }
Inferred grid_sampler_2d_backward(Arguments arguments) {
  return sampled_backward(arguments, /*volumes=*/false);
}
Inferred grid_sampler_3d_backward(Arguments arguments) {
  return sampled_backward(arguments, /*volumes=*/true);
}

// --- unfold and fold -------------------------------------------------------------------------

// (self, kernel_size, dilation, padding, stride)
Inferred im2col(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if ((self.dim() != 3 && self.dim() != 4) || self.numel() == 0 || !is_canonical(self) ||
      !is_floating(self.scalar_type())) {
    return std::nullopt;
  }
  const auto kernel = numbers<2>(arguments[1]), dilation = numbers<2>(arguments[2]),
             padding = numbers<2>(arguments[3]), stride = numbers<2>(arguments[4]);
  at::native::im2col_shape_check(self, at::Tensor(), kernel[0], kernel[1], dilation[0], dilation[1],
                                 padding[0], padding[1], stride[0], stride[1]);
  std::int64_t windows = 1;
  for (std::size_t i = 0; i < 2; ++i) {
    windows *= at::native::sliding_window_count(self.size(self.dim() - 2 + static_cast<int>(i)),
                                                padding[i], dilation[i], kernel[i], stride[i]);
  }
  const std::int64_t rows = self.size(-3) * kernel[0] * kernel[1];
  return {{Geometry(self.scalar_type(), replaced(self, 3, {rows, windows}))}};
}

// (self, output_size, kernel_size, dilation, padding, stride)
Inferred col2im(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if ((self.dim() != 2 && self.dim() != 3) || self.numel() == 0 || !is_canonical(self) ||
      !is_floating(self.scalar_type())) {
    return std::nullopt;
  }
  const auto output = numbers<2>(arguments[1]), kernel = numbers<2>(arguments[2]),
             dilation = numbers<2>(arguments[3]), padding = numbers<2>(arguments[4]),
             stride = numbers<2>(arguments[5]);
  at::native::col2im_shape_check(self, at::Tensor(), output[0], output[1], kernel[0], kernel[1],
                                 dilation[0], dilation[1], padding[0], padding[1], stride[0],
                                 stride[1]);
  const std::int64_t channels = self.size(-2) / (kernel[0] * kernel[1]);
  return {{Geometry(self.scalar_type(), replaced(self, 2, {channels, output[0], output[1]}))}};
}

// --- pooling ---------------------------------------------------------------------------------

// (self, output_size)
Inferred adaptive_avg_pool2d(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::DimVector output = arguments[1].toDimVector();
  if ((self.dim() != 3 && self.dim() != 4) || output.size() != 2 || self.numel() == 0 ||
      !is_floating(self.scalar_type()) || output[0] < 0 || output[1] < 0) {
    return std::nullopt;
  }
  return {{suggested(self, replaced(self, 2, output))}};
}

// (grad_output, self)
Inferred adaptive_avg_pool2d_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  if ((self.dim() != 3 && self.dim() != 4) || gradient.numel() == 0 || self.numel() == 0 ||
      !same_floating(gradient, self) || gradient.dim() != self.dim() ||
      gradient.sizes().slice(0, self.dim() - 2) != self.sizes().slice(0, self.dim() - 2)) {
    return std::nullopt;
  }
  return {{suggested(self, self.sizes())}};
}

// (self, output_size)
Inferred adaptive_avg_pool3d(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::DimVector output = arguments[1].toDimVector();
  if ((self.dim() != 4 && self.dim() != 5) || output.size() != 3 || self.numel() == 0 ||
      !is_floating(self.scalar_type()) || output[0] < 0 || output[1] < 0 || output[2] < 0) {
    return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), replaced(self, 3, output))}};
}

// (grad_output, self)
Inferred adaptive_avg_pool3d_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  if ((self.dim() != 4 && self.dim() != 5) || gradient.numel() == 0 || self.numel() == 0 ||
      !same_floating(gradient, self) || gradient.dim() != self.dim() ||
      gradient.sizes().slice(0, self.dim() - 3) != self.sizes().slice(0, self.dim() - 3)) {
    return std::nullopt;
  }
  return {{contiguous(self)}};
}

namespace {

/// The sizes of (self, kernel_size, stride, padding, dilation, ceil_mode) beginning at `first`.
std::optional<at::DimVector> pooled_sizes(Arguments arguments, std::size_t first) {
  const at::Tensor& self = tensor_at(arguments, first);
  if ((self.dim() != 4 && self.dim() != 5) || self.numel() == 0 || !is_canonical(self) ||
      !is_floating(self.scalar_type())) {
    return std::nullopt;
  }
  const auto kernel = numbers<3>(arguments[first + 1]), padding = numbers<3>(arguments[first + 3]),
             dilation = numbers<3>(arguments[first + 4]);
  const bool strides = !arguments[first + 2].toDimVector().empty();
  const auto stride = strides ? numbers<3>(arguments[first + 2]) : kernel;
  std::array<std::int64_t, 3> output{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (kernel[i] < 1 || stride[i] < 1 || dilation[i] < 1 || padding[i] < 0 ||
        padding[i] > kernel[i] / 2) {
      return std::nullopt;
    }
    output[i] = at::native::pooling_output_shape<std::int64_t>(
        self.size(self.dim() - 3 + static_cast<int>(i)), kernel[i], padding[i], stride[i],
        dilation[i], arguments[first + 5].toBool());
    if (output[i] < 1) return std::nullopt;
  }
  return replaced(self, 3, output);
}

bool are_indices_of(const at::Tensor& indices, const at::Tensor& values) {
  return indices.scalar_type() == c10::kLong && indices.sizes() == values.sizes();
}

}  // namespace

Inferred max_pool3d(Arguments arguments) {
  const auto sizes = pooled_sizes(arguments, 0);
  if (!sizes) return std::nullopt;
  return {{Geometry(tensor_at(arguments, 0).scalar_type(), *sizes), Geometry(c10::kLong, *sizes)}};
}

// (grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
Inferred max_pool3d_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1),
                   &indices = tensor_at(arguments, 7);
  const auto sizes = pooled_sizes(arguments, 1);
  if (!sizes || !same_floating(gradient, self) || gradient.sizes() != c10::IntArrayRef(*sizes) ||
      !are_indices_of(indices, gradient) || !is_canonical(indices) || !is_canonical(gradient)) {
    return std::nullopt;
  }
  return {{contiguous(self)}};
}

// (self, indices, output_size)
Inferred max_unpool2d(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::DimVector output = arguments[2].toDimVector();
  if ((self.dim() != 3 && self.dim() != 4) || self.numel() == 0 || output.size() != 2 ||
      output[0] < 1 || output[1] < 1 || !is_real(self.scalar_type()) ||
      !are_indices_of(tensor_at(arguments, 1), self)) {
    return std::nullopt;
  }
  return {{suggested(self, replaced(self, 2, output))}};
}

// (self, indices, output_size, stride, padding)
Inferred max_unpool3d(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::DimVector output = arguments[2].toDimVector(), stride = arguments[3].toDimVector(),
                      padding = arguments[4].toDimVector();
  if ((self.dim() != 4 && self.dim() != 5) || self.numel() == 0 || output.size() != 3 ||
      stride.size() != 3 || padding.size() != 3 || !is_real(self.scalar_type()) ||
      !are_indices_of(tensor_at(arguments, 1), self)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (output[i] < 1 || stride[i] < 1) return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), replaced(self, 3, output))}};
}

// (self, padding)
Inferred reflection_pad2d(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::DimVector padding = arguments[1].toDimVector();
  if ((self.dim() != 3 && self.dim() != 4) || self.numel() == 0 || padding.size() != 4 ||
      !is_real(self.scalar_type())) {
    return std::nullopt;
  }
  const std::int64_t height = self.size(-2), width = self.size(-1);
  const at::DimVector output{height + padding[2] + padding[3], width + padding[0] + padding[1]};
  if (padding[0] >= width || padding[1] >= width || padding[2] >= height || padding[3] >= height ||
      output[0] < 1 || output[1] < 1) {
    return std::nullopt;
  }
  return {{suggested(self, replaced(self, 2, output))}};
}

// (grad_output, self, padding)
template <int kDims>
Inferred pad_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  const at::DimVector padding = arguments[2].toDimVector();
  if ((self.dim() != kDims + 1 && self.dim() != kDims + 2) || self.numel() == 0 ||
      padding.size() != 2 * kDims || !same_floating(gradient, self)) {
    return std::nullopt;
  }
  at::DimVector padded(kDims);
  for (std::size_t d = 0; d < kDims; ++d) {  // the last dimension's padding comes first
    const std::size_t of = 2 * (kDims - 1 - d);
    padded[d] = self.size(static_cast<std::int64_t>(d) - kDims) + padding[of] + padding[of + 1];
  }
  if (gradient.sizes() != c10::IntArrayRef(replaced(self, kDims, padded))) return std::nullopt;
  return {{suggested(self, self.sizes())}};
}
Inferred pad2d_backward(Arguments arguments) { return pad_backward<2>(arguments); }
Inferred pad3d_backward(Arguments arguments) { return pad_backward<3>(arguments); }

}  // namespace loom::ops::inference
