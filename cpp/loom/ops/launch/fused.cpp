// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/fused.h"

#include "loom/backend/allocator.h"
#include "loom/backend/stream.h"
#include "loom/device/address.h"
#include "loom/fusion/program_set.h"
#include "loom/fusion/recorder.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/ops/_local_scalar_dense_native.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>

namespace loom::ops {
namespace {

using fusion::DType;
using fusion::Type;

constexpr c10::DispatchKeySet kLazy{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                    c10::DispatchKey::ZeroTensor, c10::DispatchKey::Sparse,
                                    c10::DispatchKey::SparseCsr};

}  // namespace

std::optional<DType> fusion_dtype(c10::ScalarType dtype) noexcept {
  switch (dtype) {
    case c10::kBool:
      return DType::kBool;
    case c10::kByte:
      return DType::kUInt8;
    case c10::kChar:
      return DType::kInt8;
    case c10::kShort:
      return DType::kInt16;
    case c10::kInt:
      return DType::kInt32;
    case c10::kLong:
      return DType::kInt64;
    case c10::kHalf:
      return DType::kHalf;
    case c10::kBFloat16:
      return DType::kBFloat16;
    case c10::kFloat:
      return DType::kFloat;
    case c10::kDouble:
      return DType::kDouble;
    default:
      return std::nullopt;
  }
}

FusedOperator::FusedOperator(const char* name, c10::ScalarType common) noexcept
    : expression_(name) {
  expression_.set_independent(fusion::IndependentScope::active());
  if (const auto dtype = fusion_dtype(common)) {
    common_ = *dtype;
    type_ = fusion::register_type(common_);
  } else {
    possible_ = false;
  }
}

std::optional<fusion::TensorAccess> FusedOperator::access(const at::Tensor& tensor,
                                                          std::optional<DType> dtype, bool writes) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!dtype || impl->key_set().has_any(kLazy) || impl->numel() == 0) {
    possible_ = false;
    return std::nullopt;
  }
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  if (writes) materialize(storage);
  const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  fusion::TensorAccess access;
  access.data = static_cast<std::byte*>(host_address(writes ? impl->mutable_data() : impl->data()));
  access.dtype = *dtype;
  access.sizes = {sizes.data(), sizes.size()};
  access.strides = {strides.data(), strides.size()};
  access.numel = impl->numel();
  access.contiguous = impl->is_contiguous();
  access.allocation = writes ? allocation_of(storage.data_ptr()) : nullptr;
  return access;
}

FusedOperator::Node FusedOperator::load_number(const at::Tensor& scalar) {
  if (scalar.dim() != 0 || scalar.is_complex() || !fusion_dtype(scalar.scalar_type())) {
    possible_ = false;
    return {};
  }
  return convert(at::native::_local_scalar_dense_cpu(scalar));
}

FusedOperator::Node FusedOperator::load_rounded(const at::Tensor& tensor) {
  const Node value = load(tensor);
  return possible_ && tensor.is_cpu() ? rounded(value) : value;
}

bool FusedOperator::holds(const c10::Scalar& value) const {
  const auto within = [&](double most) {
    const double size = std::abs(value.to<double>());
    return !std::isfinite(size) || size <= most;
  };
  switch (common_) {
    case DType::kBool:
    case DType::kDouble:
      return true;
    case DType::kHalf:
      return within(static_cast<double>(std::numeric_limits<c10::Half>::max()));
    case DType::kBFloat16:
      return within(static_cast<double>(std::numeric_limits<c10::BFloat16>::max()));
    case DType::kFloat:
      return within(static_cast<double>(std::numeric_limits<float>::max()));
    default:
      break;
  }
  if (value.isFloatingPoint()) return false;
  const auto whole = value.to<std::int64_t>();
  switch (common_) {
    case DType::kUInt8:
      return whole == static_cast<std::uint8_t>(whole);
    case DType::kInt8:
      return whole == static_cast<std::int8_t>(whole);
    case DType::kInt16:
      return whole == static_cast<std::int16_t>(whole);
    case DType::kInt32:
      return whole == static_cast<std::int32_t>(whole);
    default:
      return true;
  }
}

FusedOperator::Node FusedOperator::number(const c10::Scalar& value) {
  if (value.isComplex() || value.isSymbolic() || !holds(value)) {
    possible_ = false;
    return {0, type_};
  }
  return convert(value);
}

FusedOperator::Node FusedOperator::load(const at::Tensor& tensor) {
  if (!possible_) return {0, type_};
  if (tensor.device().is_cpu()) return load_number(tensor);
  const Node value = load_as_is(tensor);
  if (!possible_ || fusion_dtype(tensor.scalar_type()) == common_) return value;
  return expression_.to(common_, value);
}

FusedOperator::Node FusedOperator::load_factor(const at::Tensor& tensor) {
  const bool half = common_ == DType::kHalf || common_ == DType::kBFloat16;
  const bool single = tensor.is_privateuseone() && tensor.numel() == 1;
  if (!possible_ || !half || !single || tensor.is_complex()) return load(tensor);
  const Node value = load_as_is(tensor);
  return possible_ ? expression_.to(type_, value) : value;
}

FusedOperator::Node FusedOperator::load_as_is(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) {
    possible_ = false;
    return {0, type_};
  }
  const auto from = access(tensor, fusion_dtype(tensor.scalar_type()), /*writes=*/false);
  return from ? expression_.load(*from) : Node{0, type_};
}

FusedOperator::Node FusedOperator::load_part(const at::Tensor& tensor, int part) {
  auto from = tensor.is_privateuseone() ? access(tensor, common_, /*writes=*/false) : std::nullopt;
  if (!from || c10::toRealValueType(tensor.scalar_type()) == tensor.scalar_type() ||
      2 * fusion::size_of(common_) != tensor.itemsize()) {
    possible_ = false;
    return {0, type_};
  }
  from->data += static_cast<std::size_t>(part) * fusion::size_of(common_);
  strides_.assign(from->strides.begin(), from->strides.end());
  for (std::int64_t& stride : strides_) stride *= 2;
  from->strides = {strides_.data(), strides_.size()};
  from->contiguous = false;
  return expression_.load(*from);
}

FusedOperator::Node FusedOperator::load_column(const at::Tensor& tensor, c10::IntArrayRef rows,
                                               std::int64_t columns, std::int64_t index) {
  const auto dtype = fusion_dtype(tensor.scalar_type());
  auto from = tensor.is_privateuseone() ? access(tensor, dtype, /*writes=*/false) : std::nullopt;
  if (!from) {
    possible_ = false;
    return {0, type_};
  }
  strides_.resize(rows.size());
  std::int64_t step = columns;
  for (std::size_t d = rows.size(); d-- > 0;) {
    strides_[d] = step;
    step *= rows[d];
  }
  from->data += static_cast<std::size_t>(index) * fusion::size_of(*dtype);
  from->sizes = {rows.data(), rows.size()};
  from->strides = {strides_.data(), strides_.size()};
  from->numel /= columns;
  from->contiguous = false;
  const Node value = expression_.load(*from);
  return *dtype == common_ ? value : expression_.to(common_, value);
}

// What the dtype cannot hold wraps around.
FusedOperator::Node FusedOperator::convert(const c10::Scalar& value) {
  if (!possible_) return {0, type_};
  switch (type_) {
    case Type::kMask:
      return expression_.number(value.to<double>() != 0);
    case Type::kInt32:
    case Type::kInt64: {
      if (value.isFloatingPoint()) possible_ = false;  // ATen's own conversion decides
      const std::int64_t whole = possible_ ? value.to<std::int64_t>() : 0;
      if (type_ == Type::kInt64) return expression_.number(whole);
      if (whole != static_cast<std::int32_t>(whole)) possible_ = false;  // ATen throws
      return expression_.to(common_, expression_.number(static_cast<std::int32_t>(whole)));
    }
    default:
      return expression_.number(type_, value.to<double>());
  }
}

void FusedOperator::store(Node value, const at::Tensor& to) {
  if (!possible_) return;
  if (!to.is_privateuseone()) {
    possible_ = false;
    return;
  }
  const auto destination = access(to, fusion_dtype(to.scalar_type()), /*writes=*/true);
  if (!destination) return;
  if (value.type == type_ && destination->dtype != common_) value = rounded(value);
  expression_.store(expression_.to(destination->dtype, value), *destination);
}

bool FusedOperator::record(c10::Device device) {
  return possible_ && expression_.fits() &&
         fusion::record(current_queue(device.index()), expression_);
}

std::int64_t fusion_max_dims() noexcept { return fusion::kMaxDims; }

// Copies of strided elements to strided places are better done in squares, by ATen.
namespace {

// Shorter runs of one value are copied as fast by what copies elements in another order.
constexpr std::int64_t kLongRun = 64;

/// Whether each element of the source fills a long run of memory in `self`, which has its sizes.
bool fills_runs(const at::Tensor& self, const at::Tensor& source) {
  std::int64_t run = 1;
  for (std::int64_t d = self.dim(); d-- > 0 && self.stride(d) == run && source.stride(d) == 0;) {
    run *= self.size(d);
  }
  return run >= kLongRun;
}

}  // namespace

bool record_copy(const at::Tensor& self, const at::Tensor& source) {
  if (!self.is_non_overlapping_and_dense()) return false;
  if (self.scalar_type() == source.scalar_type()) {
    if (self.sizes() != source.sizes()) return false;
    if (self.strides() != source.strides() && !fills_runs(self, source)) return false;
  }
  FusedOperator copy("copy_", self.scalar_type());
  if (!copy.possible()) return false;
  copy.store(copy.load(source), self);
  return copy.record(self.device());
}

bool record_fill(const char* name, const at::Tensor& self, const c10::Scalar& value) {
  if (!self.is_non_overlapping_and_dense()) return false;
  FusedOperator fill(name, self.scalar_type());
  if (!fill.possible()) return false;
  fill.store(fill.number(value), self);
  return fill.record(self.device());
}

}  // namespace loom::ops
