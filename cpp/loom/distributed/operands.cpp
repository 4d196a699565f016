// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/operands.h"

#include "loom/backend/device_state.h"
#include "loom/device/address.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace loom::distributed {

namespace {

using collectives::Source;
using collectives::Target;

bool overlap(const Source& a, const Source& b) {
  const auto begin = [](const Source& memory) {
    return reinterpret_cast<std::uintptr_t>(memory.data);
  };
  return begin(a) < begin(b) + b.bytes && begin(b) < begin(a) + a.bytes;
}

std::uint64_t layout_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return 0;
  std::uint64_t layout = 1;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    // Strides of what has one element in a dimension say nothing.
    if (tensor.size(dim) == 1) continue;
    for (const std::int64_t number : {tensor.size(dim), tensor.stride(dim)}) {
      layout = (layout ^ static_cast<std::uint64_t>(number)) * 1099511628211U;
    }
  }
  return layout;
}

}  // namespace

const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, ": expected one tensor, got ", tensors.size());
  return tensors.front();
}

const std::byte* address_of(const at::Tensor& tensor) {
  const void* const address = tensor.const_data_ptr();
  return static_cast<const std::byte*>(tensor.is_cpu() ? address : host_address(address));
}

Source Operands::read(const at::Tensor& tensor) {
  const Target memory = add(tensor, AccessKind::kRead);
  return {memory.data, memory.bytes};
}

Target Operands::write(const at::Tensor& tensor) { return add(tensor, AccessKind::kReplace); }

Target Operands::update(const at::Tensor& tensor) { return add(tensor, AccessKind::kUpdate); }

Source Operands::read_in_order(const at::Tensor& tensor) {
  check(tensor);
  return read_in_order_.emplace_back(read(tensor.contiguous()));
}

Target Operands::write_in_order(const at::Tensor& tensor, std::optional<std::size_t> own) {
  check(tensor);
  bool apart = tensor.is_contiguous();
  if (apart) {
    const Source memory{address_of(tensor), tensor.nbytes()};
    for (std::size_t i = 0; i < read_in_order_.size(); ++i) {
      apart = apart && (i == own || !overlap(memory, read_in_order_[i]));
    }
  }
  if (apart) return write(tensor);
  at::Tensor contiguous = at::empty(tensor.sizes(), tensor.options());
  copies_.push_back({tensor, contiguous});
  return write(contiguous);
}

void Operands::describe(collectives::Operation& operation) const {
  operation.combination = combination_;
  operation.root = root_;
  operation.dtype_name = [](std::uint8_t dtype) {
    return c10::toString(static_cast<c10::ScalarType>(dtype));
  };
  if (dtype_) operation.dtype = static_cast<std::uint8_t>(*dtype_);
  if (reduction_) operation.reduction = static_cast<std::uint8_t>(*reduction_);
}

void Operands::check(const at::Tensor& tensor) const {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == c10::kStrided, name_,
                    ": expected dense tensors, got ",
                    tensor.defined() ? "a sparse one" : "an undefined one");
  const c10::Device device = tensor.device();
  TORCH_CHECK_VALUE(device.type() == kDeviceType || device.is_cpu(), name_,
                    ": expected tensors on loom or cpu, got one on ", device);
  TORCH_CHECK_VALUE(!device_ || *device_ == device, name_, ": expected tensors on one device, got ",
                    *device_, " and ", device);
}

Target Operands::add(const at::Tensor& tensor, AccessKind kind) {
  check(tensor);
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), name_, ": Tensors must be contiguous");
  const c10::Device device = tensor.device();
  device_ = device;
  const bool writes = kind != AccessKind::kRead;
  const ops::TensorRef ref =
      device.is_cpu() ? ops::TensorRef::of_host(tensor, writes) : ops::TensorRef(tensor, writes);
  if (!device.is_cpu()) ref.append_access(accesses_, kind);
  tensors_.push_back(tensor);
  if (kind != AccessKind::kReplace) inputs_.push_back(tensor);
  const std::size_t bytes = tensor.nbytes();
  bytes_ += bytes;
  layout_ = layout_ * 31 + layout_of(tensor);
  return {ref.data(), bytes};
}

}  // namespace loom::distributed
