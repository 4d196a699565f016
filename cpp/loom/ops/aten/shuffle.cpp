// SPDX-License-Identifier: BSD-3-Clause
// pixel_shuffle, its inverse and channel_shuffle: copies into another order, seen through views of
// more dimensions. They keep channels_last, as the CPU kernels do.
#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/launch.h"

#include <ATen/native/PixelShuffle.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <initializer_list>

namespace loom::ops {
namespace {

/// `self` with the last sizes.size() dimensions replaced, in its own memory format.
at::Tensor empty_like_but(const at::Tensor& self, std::initializer_list<std::int64_t> last) {
  at::DimVector sizes(self.sizes().begin(),
                      self.sizes().end() - static_cast<std::ptrdiff_t>(last.size()));
  sizes.append(last);
  return at::empty(sizes, self.options().memory_format(self.suggest_memory_format()));
}

/// A view of `self` with its last dimensions seen as others.
at::Tensor seen_as(const at::Tensor& self, std::ptrdiff_t last,
                   std::initializer_list<std::int64_t> sizes,
                   std::initializer_list<std::int64_t> strides) {
  at::DimVector all_sizes(self.sizes().begin(), self.sizes().end() - last);
  at::DimVector all_strides(self.strides().begin(), self.strides().end() - last);
  all_sizes.append(sizes);
  all_strides.append(strides);
  return self.as_strided(all_sizes, all_strides, self.storage_offset());
}

/// Every factor * factor channels as the places of one: (..., C, factor, factor, H, W).
at::Tensor places_of_channels(const at::Tensor& image, std::int64_t factor) {
  const std::int64_t step = image.stride(-3);
  return seen_as(
      image, 3,
      {image.size(-3) / (factor * factor), factor, factor, image.size(-2), image.size(-1)},
      {step * factor * factor, step * factor, step, image.stride(-2), image.stride(-1)});
}

/// The pixels of each square, in the order of places_of_channels().
at::Tensor places_of_pixels(const at::Tensor& image, std::int64_t factor) {
  const std::int64_t row = image.stride(-2), pixel = image.stride(-1);
  return seen_as(image, 3,
                 {image.size(-3), factor, factor, image.size(-2) / factor, image.size(-1) / factor},
                 {image.stride(-3), row, pixel, row * factor, pixel * factor});
}

at::Tensor pixel_shuffle(const at::Tensor& self, std::int64_t factor) {
  at::native::check_pixel_shuffle_shapes(self, factor);
  at::Tensor result = empty_like_but(
      self, {self.size(-3) / (factor * factor), self.size(-2) * factor, self.size(-1) * factor});
  if (result.numel() == 0) return result;
  places_of_pixels(result, factor).copy_(places_of_channels(self, factor));
  return result;
}

at::Tensor pixel_unshuffle(const at::Tensor& self, std::int64_t factor) {
  at::native::check_pixel_unshuffle_shapes(self, factor);
  if (self.numel() == 0) return self.clone();  // as cpu has it
  at::Tensor result = empty_like_but(
      self, {self.size(-3) * factor * factor, self.size(-2) / factor, self.size(-1) / factor});
  places_of_channels(result, factor).copy_(places_of_pixels(self, factor));
  return result;
}

at::Tensor channel_shuffle(const at::Tensor& self, std::int64_t groups) {
  const bool plain = self.dim() > 2 && groups > 0 && self.numel() > 0 && self.size(1) % groups == 0;
  if (!plain) {
    return call_fallback<at::Tensor, const at::Tensor&, std::int64_t>("aten::channel_shuffle", "",
                                                                      self, groups);
  }
  at::Tensor result =
      at::empty(self.sizes(), self.options().memory_format(self.suggest_memory_format()));
  const std::int64_t length = self.size(1) / groups;
  result.unflatten(1, {length, groups}).copy_(self.unflatten(1, {groups, length}).transpose(1, 2));
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("pixel_shuffle", TORCH_FN(pixel_shuffle));
  m.impl("pixel_unshuffle", TORCH_FN(pixel_unshuffle));
  m.impl("channel_shuffle", TORCH_FN(channel_shuffle));
}

}  // namespace loom::ops
