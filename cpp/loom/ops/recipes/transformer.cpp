// SPDX-License-Identifier: BSD-3-Clause
// The fast path of nn.MultiheadAttention and nn.TransformerEncoderLayer: one operator for a layer
// without gradients. ATen's CPU kernels of both only call further operators, which are loom's, but
// for the two that only they use.
#include "loom/backend/registration.h"
#include "loom/ops/launch/borrowed_kernel.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/add.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

namespace loom::ops {
namespace {

using Parts = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// (batch, items, 3 * heads * n) to three of (batch, heads, items, n): queries, which are scaled,
/// keys and values.
Parts transform_bias_rescale_qkv(const at::Tensor& qkv, const at::Tensor& bias,
                                 std::int64_t heads) {
  TORCH_CHECK(qkv.size(2) % 3 == 0 && qkv.size(2) / 3 % heads == 0,
              "_transform_bias_rescale_qkv: expected a last dimension that 3 times num_heads ",
              "divides, got ", qkv.size(2));
  const std::int64_t length = qkv.size(2) / 3 / heads;
  at::Tensor parts = at::add(qkv, bias)
                         .view({qkv.size(0), qkv.size(1), 3, heads, length})
                         .permute({2, 0, 3, 1, 4})
                         .contiguous();
  parts.select(0, 0).mul_(1 / std::sqrt(static_cast<double>(length)));
  return {parts.select(0, 0), parts.select(0, 1), parts.select(0, 2)};
}

/// The mask in a shape that broadcasts to the input's: types 0 and 1 are (items, items) and (batch,
/// items) beside (batch, heads, items, items), 2 has the input's shape.
at::Tensor broadcast_mask(const at::Tensor& input, const at::Tensor& mask,
                          std::optional<std::int64_t> type) {
  const auto sizes = input.sizes();
  if (mask.dim() != 2 || input.dim() != 4) type = 2;
  if (type == 2) {
    TORCH_CHECK(sizes == mask.sizes(), "For mask_type == 2 mask shape should match input shape");
    return mask;
  }
  TORCH_CHECK(type == 0 || type == 1,
              "Mask Type should be 0 (src_mask) or 1 (src_key_padding_mask), or 2 "
              "(default_mask)");
  if (type == 1) {
    TORCH_CHECK(sizes[0] == mask.size(0) && sizes[2] == mask.size(1),
                "For mask_type == 1 mask shape should be (B, L)");
    return mask.view({sizes[0], 1, 1, sizes[2]});
  }
  TORCH_CHECK(sizes[2] == mask.size(0) && sizes[2] == mask.size(1),
              "For mask_type == 0 mask shape should be (L, L)");
  return mask.view({1, 1, sizes[2], sizes[2]});
}

/// What the mask says is left out; a row of nothing else is NaN.
at::Tensor masked_softmax(const at::Tensor& input, const at::Tensor& mask,
                          std::optional<std::int64_t> dim, std::optional<std::int64_t> type) {
  TORCH_CHECK(mask.scalar_type() == c10::kBool, "Mask should be a boolean tensor");
  const at::Tensor where = broadcast_mask(input, mask.contiguous(), type);
  const std::int64_t along = c10::maybe_wrap_dim(dim.value_or(input.dim() - 1), input.dim());
  return at::_softmax(input.masked_fill(where, -std::numeric_limits<double>::infinity()), along,
                      /*half_to_float=*/false);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"}) {
    m.impl(name,
           torch::CppFunction::makeFromBoxedFunction<&borrowed_kernel<c10::DispatchKey::CPU>>());
  }
  m.impl("_transform_bias_rescale_qkv", TORCH_FN(transform_bias_rescale_qkv));
  m.impl("_masked_softmax", TORCH_FN(masked_softmax));
}

}  // namespace loom::ops
