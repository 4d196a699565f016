// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/empty.h"

#include "loom/backend/allocator.h"
#include "loom/backend/stream.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <utility>

namespace loom::ops {
namespace {

c10::Storage make_storage(std::size_t bytes, c10::Device device) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, allocate(bytes, current_queue(device.index())),
      c10::GetAllocator(c10::kPrivateUse1), /*resizable=*/true);
}

// PyTorch warns once in a process, whatever the device: its own factory knows whether it has.
void warn_of_complex_half() { (void)at::detail::empty_meta({0}, c10::kComplexHalf, std::nullopt); }

at::Tensor over(c10::Storage storage, c10::ScalarType dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
}

}  // namespace

at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device,
                 c10::MemoryFormat format) {
  at::detail::check_size_nonnegative(sizes);
  if (dtype == c10::kComplexHalf) [[unlikely]] {
    warn_of_complex_half();
  }
  const std::size_t bytes =
      at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  at::Tensor tensor = over(make_storage(bytes, device), dtype);
  if (sizes.size() != 1 || sizes[0] != 0) {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  if (format != c10::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  return tensor;
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                         c10::Device device) {
  if (strides.empty()) return empty(sizes, dtype, device);
  at::detail::check_size_nonnegative(sizes);
  if (dtype == c10::kComplexHalf) [[unlikely]] {
    warn_of_complex_half();
  }
  const std::size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor tensor = over(make_storage(bytes, device), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor empty_like(const at::Tensor& like) {
  if (like.is_non_overlapping_and_dense()) {
    return empty_strided(like.sizes(), like.strides(), like.scalar_type(), like.device());
  }
  const auto strides = at::infer_dense_strides(like.sizes(), like.strides());
  return empty_strided(like.sizes(), strides, like.scalar_type(), like.device());
}

at::Tensor make_tensor(c10::Storage storage, c10::ScalarType dtype, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, std::int64_t storage_offset) {
  at::Tensor tensor = over(std::move(storage), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, storage_offset);
  return tensor;
}

}  // namespace loom::ops
