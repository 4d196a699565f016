// SPDX-License-Identifier: BSD-3-Clause
// Views, and what changes the storage or the size of a tensor in place: metadata only, no worker.
// Most view operators are composite in ATen and end in one of these.

#include "loom/backend/registration.h"
#include "loom/backend/stream.h"
#include "loom/ops/launch/empty.h"

#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

// Grows the storage, never shrinks it, as on every other device.
void grow_storage(const at::Tensor& self) {
  if (self.numel() == 0) return;
  const std::size_t bytes = at::detail::computeStorageNbytes(
      self.sizes(), self.strides(), self.itemsize(), self.storage_offset());
  if (bytes > self.storage().nbytes()) {
    at::native::resize_bytes_nocuda(self.storage(), static_cast<std::int64_t>(bytes));
  }
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes,
                          std::optional<c10::MemoryFormat> memory_format) {
  const std::int64_t old_bytes = static_cast<std::int64_t>(self.storage().nbytes());
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) {
    at::detail::check_size_nonnegative(sizes);
    impl->set_sizes_contiguous(sizes);
    grow_storage(self);
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
    grow_storage(self);
  }
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, c10::Storage source, std::int64_t storage_offset,
                               c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), storage_offset, sizes, strides);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(storage_offset);
  if (strides.data() != nullptr) {
    impl->set_sizes_and_strides(sizes, strides, storage_offset);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  grow_storage(self);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, c10::Storage source) {
  const auto length = static_cast<std::int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, {length}, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  const at::Tensor nothing = empty({0}, self.scalar_type(), self.device());
  return set_storage_offset(self, nothing.storage(), 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(c10::kPrivateUse1)->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  library.impl("resize_", resize_);
  library.impl("set_", set_nothing);
  library.impl("set_.source_Storage", set_source_storage);
  library.impl("set_.source_Storage_storage_offset", set_storage_offset);
  library.impl("set_.source_Tensor", set_source_tensor);
  library.impl("record_stream", record_stream);
}

// A view that is conjugated or negated lazily has the storage of its base. ATen's fallbacks for
// these keys would call the operator with a copy, whose memory nobody uses, and do not keep the
// stream apart from tensors.
LOOM_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("record_stream", torch::CppFunction::makeFallthrough());
}
LOOM_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("record_stream", torch::CppFunction::makeFallthrough());
}
LOOM_LIBRARY_IMPL(aten, ZeroTensor, library) {
  library.impl("record_stream", torch::CppFunction::makeFallthrough());
}

}  // namespace loom::ops
