// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/sparse_parts.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Layout.h>

#include <optional>

namespace loom::ops {
namespace {

at::SparseTensorImpl& coordinate(const at::Tensor& tensor) {
  return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl& compressed(const at::Tensor& tensor) {
  return *static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor empty_sparse(c10::Layout layout, c10::Device device, caffe2::TypeMeta dtype) {
  using c10::DispatchKey;
  // A new coordinate tensor is on the current device, whatever its parts will be.
  const c10::OptionalDeviceGuard guard(device.is_cpu() ? std::nullopt : std::optional(device));
  const bool cpu = device.is_cpu();
  if (layout == c10::kSparse) {
    const DispatchKey key = cpu ? DispatchKey::SparseCPU : DispatchKey::SparsePrivateUse1;
    return at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), dtype);
  }
  const DispatchKey key = cpu ? DispatchKey::SparseCsrCPU : DispatchKey::SparseCsrPrivateUse1;
  return at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(key), device, layout,
                                                          dtype);
}

void assign_coordinate(at::SparseTensorImpl& from, at::SparseTensorImpl& to, MapPart map) {
  const at::Tensor indices = map(from.indices());
  const at::Tensor values = map(from.values());
  if (!indices.is_same(to.indices()) || !values.is_same(to.values()) ||
      from.sizes() != to.sizes()) {
    to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
    to.set_indices_and_values_unsafe(indices, values);
  }
  if (from.coalesced() != to.coalesced()) to.set_coalesced(from.coalesced());
}

void assign_compressed(at::SparseCsrTensorImpl& from, at::SparseCsrTensorImpl& to, MapPart map) {
  const at::Tensor outer = map(from.compressed_indices());
  const at::Tensor inner = map(from.plain_indices());
  const at::Tensor values = map(from.values());
  if (outer.is_same(to.compressed_indices()) && inner.is_same(to.plain_indices()) &&
      values.is_same(to.values()) && from.sizes() == to.sizes()) {
    return;
  }
  to.set_member_tensors(outer, inner, values, from.sizes());
}

}  // namespace

bool is_sparse(const at::Tensor& tensor) noexcept {
  switch (tensor.layout()) {
    case c10::kSparse:
    case c10::kSparseCsr:
    case c10::kSparseCsc:
    case c10::kSparseBsr:
    case c10::kSparseBsc:
      return true;
    default:
      return false;
  }
}

at::Tensor make_sparse(const at::Tensor& sparse, c10::Device device, MapPart map) {
  at::Tensor result = empty_sparse(sparse.layout(), device, sparse.dtype());
  assign_sparse(sparse, result, map);
  return result;
}

void assign_sparse(const at::Tensor& from, const at::Tensor& to, MapPart map) {
  if (from.layout() == c10::kSparse) {
    assign_coordinate(coordinate(from), coordinate(to), map);
  } else {
    assign_compressed(compressed(from), compressed(to), map);
  }
}

}  // namespace loom::ops
