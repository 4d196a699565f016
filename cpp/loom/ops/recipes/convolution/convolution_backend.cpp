// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/convolution/convolution_backend.h"

#include <ATen/Context.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>

namespace loom::ops {
namespace {

using Parameters = ConvolutionParameters;

/// A tensor of the cpu of the same geometry, whose elements nobody may read.
at::Tensor same_geometry(const at::Tensor& tensor) {
  static char nothing = 0;
  return at::from_blob(&nothing, tensor.sizes(), tensor.strides(),
                       tensor.options().device(c10::kCPU));
}

/// The kernel that PyTorch would choose for tensors of the cpu.
at::native::ConvBackend backend_of(const at::Tensor& x, const at::Tensor& w, const Parameters& p) {
  const auto list = [](c10::IntArrayRef values) { return c10::fromIntArrayRefSlow(values); };
  return at::native::select_conv_backend(x, w, std::nullopt, list(p.stride), list(p.padding),
                                         list(p.dilation), p.transposed, list(p.output_padding),
                                         p.groups, std::nullopt);
}

[[noreturn]] void refuse_sizes(c10::IntArrayRef input, c10::IntArrayRef result) {
  TORCH_CHECK(false, "Given input size per channel: (", c10::Join(" x ", input.slice(2)),
              "). Calculated output size per channel: (", c10::Join(" x ", result.slice(2)),
              "). Output size is too small");
}

}  // namespace

ConvolutionParameters for_parts(const at::Tensor& input, const at::Tensor& weight,
                                const Parameters& p) {
  using at::native::ConvBackend;
  Parameters made = p;
  switch (backend_of(same_geometry(input), same_geometry(weight), p)) {
    case ConvBackend::Mkldnn:
    case ConvBackend::MkldnnTranspose:
      made.onednn = true;
      break;
    case ConvBackend::Slow3d:
    case ConvBackend::SlowDilated3d:
      made.onednn = input.scalar_type() == c10::kFloat && at::globalContext().userEnabledMkldnn();
      break;
    default:
      break;
  }
  return made;
}

bool is_channels_last(const at::Tensor& input, const at::Tensor& weight, const Parameters& p) {
  constexpr auto kImages = c10::MemoryFormat::ChannelsLast;
  if (input.dim() == 4) {
    return input.suggest_memory_format() == kImages || weight.suggest_memory_format() == kImages;
  }
  if (!at::native::mkldnn_conv_use_channels_last(input, weight)) return false;
  const at::Tensor x = same_geometry(input), w = same_geometry(weight);
  return at::native::_determine_backend_memory_format(x, w, backend_of(x, w, p)) !=
         c10::MemoryFormat::Contiguous;
}

void check_sizes(c10::IntArrayRef input, c10::IntArrayRef result) {
  if (std::ranges::any_of(result, [](std::int64_t size) { return size < 0; })) {
    refuse_sizes(input, result);
  }
}

void check_empty_result(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                        const Parameters& p) {
  using at::native::ConvBackend;
  const ConvBackend backend = backend_of(same_geometry(input), same_geometry(weight), p);
  TORCH_CHECK(backend != ConvBackend::SlowTranspose2d || weight.numel() != 0,
              "non-empty 2D or 4D weight tensor expected, but got: ", weight.sizes());
  if (backend == ConvBackend::SlowTranspose2d || backend == ConvBackend::SlowTranspose3d) {
    refuse_sizes(input.sizes(), output.sizes());
  }
}

}  // namespace loom::ops
