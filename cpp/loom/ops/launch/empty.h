// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// New device tensors, their memory taken from the caching allocator for the current stream of the
// device: what operators allocate their outputs with. Thread: any.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

namespace loom::ops {

/// Contiguous, or channels last. Throws: torch.OutOfMemoryError; a RuntimeError for negative sizes
/// and for a format that has another number of dimensions.
[[nodiscard]] at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device,
                               c10::MemoryFormat format = c10::MemoryFormat::Contiguous);

/// With strides in elements; empty `strides` means contiguous. Throws: as empty().
[[nodiscard]] at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                       c10::ScalarType dtype, c10::Device device);

/// As `like` in sizes, dtype and device, and in strides where it is dense (torch.empty_like).
[[nodiscard]] at::Tensor empty_like(const at::Tensor& like);

/// A tensor over an existing device storage. `storage_offset` in elements.
[[nodiscard]] at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype,
                                     c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                     std::int64_t storage_offset = 0);

}  // namespace loom::ops
