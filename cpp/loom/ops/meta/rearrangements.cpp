// SPDX-License-Identifier: BSD-3-Clause
// Operators that move elements, in place too, and ranges.
#include "loom/ops/meta/rule.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/ops/index_meta_dispatch.h>

#include <algorithm>
#include <limits>

namespace loom::ops::inference {
namespace {

/// What an operator in place answers that finds its arguments right.
Inferred in_place(const at::Tensor& self) { return {{Geometry::like(self)}}; }

at::Tensor on_meta(const at::Tensor& tensor) {
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

/// Whether dimensions are in the order of their strides: what such an index selects is contiguous.
bool lies_in_order(const at::Tensor& tensor) {
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t d = 0; tensor.dim() > 1 && d < tensor.dim(); ++d) {
    if (tensor.size(d) == 1) continue;
    if (tensor.stride(d) == 0 || tensor.stride(d) >= last) return false;
    last = tensor.stride(d);
  }
  return true;
}

bool shares_elements(const at::Tensor& self) {
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (self.stride(d) == 0 && self.size(d) > 1) return true;
  }
  return false;
}

/// The sizes of self[indices], if no index is a mask; nothing if they do not fit.
std::optional<at::DimVector> indexed_sizes(const at::Tensor& self,
                                           c10::ArrayRef<c10::IValue> indices) {
  at::DimVector picked, before, after;
  std::int64_t groups = 0;
  bool in_group = false;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    const bool given = static_cast<std::size_t>(d) < indices.size() && indices[d].isTensor() &&
                       indices[d].toTensor().defined();
    if (!given) {
      (groups == 0 ? before : after).push_back(self.size(d));
      in_group = false;
      continue;
    }
    const at::Tensor& index = indices[d].toTensor();
    if (index.scalar_type() != c10::kLong && index.scalar_type() != c10::kInt) return std::nullopt;
    picked = at::infer_size_dimvector(picked, index.sizes());
    groups += in_group ? 0 : 1;
    in_group = true;
  }
  if (groups == 0) return std::nullopt;
  // Indices that are not neighbours have their dimensions in front.
  at::DimVector sizes = groups == 1 ? before : picked;
  sizes.append(groups == 1 ? picked : before);
  sizes.append(after);
  return sizes;
}

bool is_whole(const c10::IValue& number) { return number.isInt(); }

}  // namespace

// (self, dims)
Inferred flip(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  std::vector<bool> seen(static_cast<std::size_t>(std::max<std::int64_t>(self.dim(), 1)));
  for (const std::int64_t given : arguments[1].toDimVector()) {
    const auto dim = wrapped_dim(given, self.dim());
    if (!dim || seen[static_cast<std::size_t>(*dim)]) return std::nullopt;
    seen[static_cast<std::size_t>(*dim)] = true;
  }
  return {{Geometry::like(self)}};
}

// (self, index)
Inferred take(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &index = tensor_at(arguments, 1);
  if (index.scalar_type() != c10::kLong || self.numel() == 0) return std::nullopt;
  return {{Geometry(self.scalar_type(), index.sizes())}};
}

// (grad_in, input_sizes, dim, size, step)
Inferred unfold_backward(Arguments arguments) {
  const at::Tensor& gradient = tensor_at(arguments, 0);
  const at::DimVector sizes = arguments[1].toDimVector();
  const auto dims = static_cast<std::int64_t>(sizes.size());
  const auto dim = wrapped_dim(arguments[2].toInt(), dims);
  const std::int64_t size = arguments[3].toInt(), step = arguments[4].toInt();
  if (!dim || dims == 0 || gradient.dim() != dims + 1 || !is_floating(gradient.scalar_type()) ||
      step < 1 || size < 1 || size > sizes[*dim]) {
    return std::nullopt;
  }
  at::DimVector windows = sizes;
  windows[*dim] = (sizes[*dim] - size) / step + 1;
  windows.push_back(size);
  if (gradient.sizes() != c10::IntArrayRef(windows)) return std::nullopt;
  return {{Geometry(gradient.scalar_type(), sizes)}};
}

// (self, indices). PyTorch's Meta kernel in Python does not look at how indices lie; that in C++
// does, as CPU's kernel.
Inferred index(Arguments arguments) {
  const c10::ArrayRef<c10::IValue> indices = arguments[1].toListRef();
  const auto is_given = [](const c10::IValue& index) {
    return index.isTensor() && index.toTensor().defined();
  };
  if (std::ranges::all_of(indices, [&](const c10::IValue& index) {
        return !is_given(index) || lies_in_order(index.toTensor());
      })) {
    return std::nullopt;
  }
  c10::List<std::optional<at::Tensor>> twins;
  for (const c10::IValue& index : indices) {
    twins.push_back(is_given(index) ? std::optional(on_meta(index.toTensor())) : std::nullopt);
  }
  const at::Tensor selected = at::meta::index(on_meta(tensor_at(arguments, 0)), twins);
  return {{Geometry(selected.scalar_type(), at::DimVector(selected.sizes()),
                    at::DimVector(selected.strides()))}};
}

// (self, indices, values, accumulate, unsafe)
Inferred index_put(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &values = tensor_at(arguments, 2);
  const c10::ArrayRef<c10::IValue> indices = arguments[1].toListRef();
  TORCH_CHECK(values.scalar_type() == self.scalar_type());
  if (static_cast<std::int64_t>(indices.size()) > self.dim() || self.numel() == 0 ||
      shares_elements(self)) {
    return std::nullopt;
  }
  const auto sizes = indexed_sizes(self, indices);
  if (!sizes || !at::is_expandable_to(values.sizes(), *sizes)) return std::nullopt;
  return in_place(self);
}

// (self, dim, index, value)
Inferred index_fill(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &index = tensor_at(arguments, 2);
  const c10::IValue& value = arguments[3];
  const bool is_number =
      value.isTensor() ? value.toTensor().dim() == 0 && !is_complex(value.toTensor().scalar_type())
                       : !value.isComplexDouble();
  if (!wrapped_dim(arguments[1].toInt(), self.dim()) || self.dim() == 0 || index.dim() > 1 ||
      index.scalar_type() != c10::kLong || !is_number || shares_elements(self)) {
    return std::nullopt;
  }
  return in_place(self);
}

// (self, mask, source)
Inferred masked_scatter(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &mask = tensor_at(arguments, 1);
  if (mask.scalar_type() != c10::kBool || shares_elements(self) ||
      tensor_at(arguments, 2).scalar_type() != self.scalar_type() ||
      !at::is_expandable_to(mask.sizes(), self.sizes())) {
    return std::nullopt;
  }
  return in_place(self);
}

// (start, end, step, *, out)
Inferred arange(Arguments arguments) {
  const c10::ScalarType dtype = tensor_at(arguments, 3).scalar_type();
  const bool whole = std::ranges::all_of(arguments.slice(0, 3), is_whole);
  if (!is_real(dtype) && !(dtype == c10::kLong && whole)) return std::nullopt;
  const c10::Scalar start = arguments[0].toScalar(), end = arguments[1].toScalar(),
                    step = arguments[2].toScalar();
  const std::int64_t count = dtype == c10::kLong
                                 ? at::native::compute_arange_size<std::int64_t>(start, end, step)
                                 : at::native::compute_arange_size<double>(start, end, step);
  return {{Geometry(dtype, {count})}};
}

// (start, end, steps, ..., *, out)
Inferred linspace(Arguments arguments) {
  const c10::ScalarType dtype = arguments.back().toTensor().scalar_type();
  const bool complex = arguments[0].isComplexDouble() || arguments[1].isComplexDouble();
  const std::int64_t steps = arguments[2].toInt();
  if (!is_real(dtype) || complex || steps < 0) return std::nullopt;
  return {{Geometry(dtype, {steps})}};
}

}  // namespace loom::ops::inference
