// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A quantized tensor is integers and a quantizer, which knows scales and zero points: numbers, or
// for each channel small tensors. The integers are shared between a device tensor and its CPU
// alias, as those of any dense tensor; the quantizer is shared or, where it has tensors, rebuilt.
// Thread: any; a tensor is changed by one thread at a time, as everywhere.

#include "loom/ops/fallback/sparse_parts.h"

#include <ATen/core/QuantizerBase.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace loom::ops {

/// The quantizer of a quantized tensor; null for all others.
[[nodiscard]] at::QuantizerPtr quantizer_of(const at::Tensor& tensor);

/// Requires: a quantized tensor.
void set_quantizer(const at::Tensor& tensor, at::QuantizerPtr quantizer);

/// A quantizer like `quantizer` with `map` of each of its tensors.
[[nodiscard]] at::QuantizerPtr map_quantizer(const at::QuantizerPtr& quantizer, MapPart map);

/// A quantized tensor over `storage`, with sizes, strides and the dtype of `like`.
[[nodiscard]] at::Tensor make_quantized(const at::Tensor& like, c10::Storage storage,
                                        std::int64_t storage_offset, at::QuantizerPtr quantizer);

}  // namespace loom::ops
