// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/tensor_ref.h"

#include "loom/device/address.h"
#include "loom/device/failed_memory.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/COW.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>

namespace loom::ops {
namespace {

// What TensorIterator and every view operator allow.
constexpr std::size_t kMaxDims = 64;

// Bytes from the first element to the end of the last one.
std::size_t extent_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::size_t itemsize) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return (static_cast<std::size_t>(last) + 1) * itemsize;
}

}  // namespace

void materialize(c10::StorageImpl& storage) {
  if (!c10::impl::cow::is_cow_data_ptr(storage.data_ptr())) [[likely]]
    return;
  // The copy is made by the current stream of the current device.
  const c10::DeviceGuard guard(storage.device());
  (void)storage.mutable_data();
}

at::Tensor make_alias(const TensorView& view) {
  const std::size_t bytes = extent_bytes(view.sizes, view.strides, c10::elementSize(view.dtype));
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       c10::DataPtr(view.data, c10::kCPU),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(view.dtype));
  impl->set_sizes_and_strides(view.sizes, view.strides);
  if (view.wrapped_number) impl->set_wrapped_number(true);
  at::Tensor alias(std::move(impl));
  if (view.conj) alias._set_conj(true);
  if (view.neg) alias._set_neg(true);
  return alias;
}

namespace {

/// Whether elements are at the same places: steps along dimensions of size 1 lead nowhere.
bool lie_alike(c10::IntArrayRef sizes, c10::IntArrayRef left, c10::IntArrayRef right) {
  if (left.size() != right.size()) return false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && left[d] != right[d]) return false;
  }
  return true;
}

}  // namespace

void KeptForm::make_pass() const {
  if (alias_.is_conj() == conj_ && alias_.is_neg() == neg_ &&
      lie_alike(alias_.sizes(), alias_.strides(), strides_)) {
    alias_.unsafeGetTensorImpl()->set_sizes_and_strides(alias_.sizes(), strides_);
    return;
  }
  const at::Tensor values = alias_.clone();
  alias_._set_conj(conj_);
  alias_._set_neg(neg_);
  TORCH_CHECK(alias_.dim() == static_cast<std::int64_t>(strides_.size()), "expected a result with ",
              strides_.size(), " dimensions as inferred, got ", alias_.dim());
  alias_.unsafeGetTensorImpl()->set_sizes_and_strides(alias_.sizes(), strides_);
  alias_.copy_(values);
}

TensorRef::TensorRef(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined()) return;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  dtype_ = tensor.scalar_type();
  conj_ = impl->is_conj();
  neg_ = impl->is_neg();
  wrapped_number_ = impl->is_wrapped_number();
  if (impl->device_type() == c10::kCPU) {
    TORCH_INTERNAL_ASSERT(impl->dim() == 0, "a CPU tensor with dimensions reached a launch");
    immediate_ = contiguous_ = dense_ = true;
    numel_ = 1;
    std::memcpy(value_, impl->data(), itemsize());
    return;
  }
  // The door to device memory: from here on only the host-accessible address is used.
  if (impl->numel() != 0) {
    if (writes) materialize(*impl->unsafe_storage().unsafeGetStorageImpl());
    data_ = static_cast<std::byte*>(host_address(writes ? impl->mutable_data() : impl->data()));
  }
  set_geometry(*impl);
}

TensorRef TensorRef::of_host(const at::Tensor& tensor, bool writes) {
  TensorRef ref;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  ref.dtype_ = tensor.scalar_type();
  ref.conj_ = impl->is_conj();
  ref.neg_ = impl->is_neg();
  if (impl->numel() != 0) {
    ref.data_ =
        static_cast<std::byte*>(writes ? impl->mutable_data() : const_cast<void*>(impl->data()));
  }
  ref.set_geometry(*impl);
  return ref;
}

TensorRef TensorRef::at(std::byte* data) const {
  TensorRef other;
  other.data_ = data;
  other.numel_ = numel_;
  other.ndim_ = ndim_;
  other.dtype_ = dtype_;
  other.contiguous_ = contiguous_;
  other.dense_ = dense_;
  other.conj_ = conj_;
  other.neg_ = neg_;
  const auto count = 2 * static_cast<std::size_t>(ndim_);
  if (heap_) other.heap_ = std::make_unique<std::int64_t[]>(count);
  std::copy_n(geometry(), count, heap_ ? other.heap_.get() : other.inline_);
  return other;
}

void TensorRef::set_geometry(const c10::TensorImpl& impl) {
  const c10::IntArrayRef sizes = impl.sizes();
  const c10::IntArrayRef strides = impl.strides();
  ndim_ = static_cast<std::int32_t>(sizes.size());
  numel_ = impl.numel();
  contiguous_ = impl.is_contiguous();
  dense_ = contiguous_ || impl.is_non_overlapping_and_dense();
  std::int64_t* geometry = inline_;
  if (ndim_ > kInlineDims) {
    heap_ = std::make_unique<std::int64_t[]>(2 * sizes.size());
    geometry = heap_.get();
  }
  std::copy(sizes.begin(), sizes.end(), geometry);
  std::copy(strides.begin(), strides.end(), geometry + ndim_);
}

TensorView TensorRef::view() const noexcept {
  if (immediate_) {
    return {data(), {}, {}, dtype_, conj_, neg_, wrapped_number_};
  }
  return {data_, sizes(), strides(), dtype_, conj_, neg_, wrapped_number_};
}

at::Tensor TensorRef::alias() const { return defined() ? make_alias(view()) : at::Tensor(); }

at::Tensor TensorRef::alias_slice(std::int64_t dim, std::int64_t begin, std::int64_t length) const {
  TensorView part = view();
  std::array<std::int64_t, kMaxDims> sizes;
  std::copy(part.sizes.begin(), part.sizes.end(), sizes.begin());
  sizes[static_cast<std::size_t>(dim)] = length;
  part.sizes = c10::IntArrayRef(sizes.data(), part.sizes.size());
  part.data += begin * part.strides[dim] * static_cast<std::int64_t>(itemsize());
  return make_alias(part);
}

at::Tensor TensorRef::alias_flat(std::int64_t begin, std::int64_t length) const {
  const std::int64_t stride = 1;
  TensorView part = view();
  part.data += begin * static_cast<std::int64_t>(itemsize());
  part.sizes = c10::IntArrayRef(&length, 1);
  part.strides = c10::IntArrayRef(&stride, 1);
  return make_alias(part);
}

void TensorRef::check_values() const {
  if (!FailedMemory::any() || !defined() || immediate_ || numel_ == 0) return;
  FailedMemory::check(device_address(data_), extent_bytes(sizes(), strides(), itemsize()));
}

void TensorRef::append_access(AccessList& list, AccessKind kind) const {
  if (!defined() || immediate_ || numel_ == 0) return;
  if (kind == AccessKind::kReplace && !dense_) kind = AccessKind::kUpdate;
  list.push_back({device_address(data_), extent_bytes(sizes(), strides(), itemsize()), kind});
}

}  // namespace loom::ops
