// SPDX-License-Identifier: BSD-3-Clause
// pixel_shuffle and its inverse with ATen's CPU kernels, which keep channels_last where the
// composition of views that other devices use does not. Cut along the batch.
#include "loom/ops/launch.h"

#include <ATen/native/PixelShuffle.h>
#include <ATen/native/cpu/PixelShuffleKernel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

// Of one element that is moved, beside an addition.
constexpr double kMoveCost = 2;

template <auto kKernel>
at::Tensor rearrange(const char* name, const at::Tensor& self, std::int64_t channels,
                     std::int64_t height, std::int64_t width, std::int64_t factor) {
  at::DimVector sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.append({channels, height, width});
  const auto format = self.suggest_memory_format();
  const at::Tensor result = at::empty(sizes, self.options().memory_format(format));
  if (result.numel() == 0) return result;
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, std::int64_t step) {
    at::Tensor output = to;
    kKernel(output, from, step);
  };
  const auto elements = static_cast<double>(self.numel());
  if (self.dim() == 4) {
    launch(name,
           Along{.dims = {0, 0}, .cost = kMoveCost * elements / static_cast<double>(self.size(0))},
           kernel, out(result), self.contiguous(format), factor);
  } else {
    launch(name, Whole{}, kernel, out(result), self.contiguous(format), factor);
  }
  return result;
}

void shuffle_kernel(at::TensorBase& to, const at::TensorBase& from, std::int64_t factor) {
  at::native::pixel_shuffle_kernel(c10::kCPU, to, from, factor);
}

void unshuffle_kernel(at::TensorBase& to, const at::TensorBase& from, std::int64_t factor) {
  at::native::pixel_unshuffle_kernel(c10::kCPU, to, from, factor);
}

at::Tensor pixel_shuffle(const at::Tensor& self, std::int64_t factor) {
  at::native::check_pixel_shuffle_shapes(self, factor);
  return rearrange<&shuffle_kernel>("pixel_shuffle", self, self.size(-3) / (factor * factor),
                                    self.size(-2) * factor, self.size(-1) * factor, factor);
}

at::Tensor pixel_unshuffle(const at::Tensor& self, std::int64_t factor) {
  at::native::check_pixel_unshuffle_shapes(self, factor);
  if (self.numel() == 0) return self.clone();  // as cpu has it
  return rearrange<&unshuffle_kernel>("pixel_unshuffle", self, self.size(-3) * factor * factor,
                                      self.size(-2) / factor, self.size(-1) / factor, factor);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("pixel_shuffle", TORCH_FN(pixel_shuffle));
  m.impl("pixel_unshuffle", TORCH_FN(pixel_unshuffle));
}

}  // namespace loom::ops
