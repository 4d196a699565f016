// SPDX-License-Identifier: BSD-3-Clause
// Selections and counts.
#include "loom/ops/meta/rule.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace loom::ops::inference {
namespace {

constexpr std::int64_t kMostEdges = std::numeric_limits<std::int32_t>::max() - 1;

/// Values and indices along a dimension that is reduced to one element.
Inferred selected(const at::Tensor& self, std::int64_t dim, bool keepdim) {
  at::DimVector sizes(self.sizes());
  if (!sizes.empty() && keepdim) sizes[dim] = 1;
  if (!sizes.empty() && !keepdim) sizes.erase(sizes.begin() + dim);
  return {{Geometry(self.scalar_type(), sizes), Geometry(c10::kLong, sizes)}};
}

bool is_ordered(c10::ScalarType dtype) {
  return is_floating(dtype) || (c10::isIntegralType(dtype, /*includeBool=*/false) &&
                                !c10::isBarebonesUnsignedType(dtype));
}

bool has_weights_like(const at::Tensor& self, const at::Tensor& weight, std::int64_t count) {
  return !weight.defined() || (weight.scalar_type() == self.scalar_type() && weight.dim() == 1 &&
                               weight.numel() == count);
}

/// The last dimension of `self` counts coordinates, others points.
std::int64_t points_of(const at::Tensor& self) {
  return c10::multiply_integers(self.sizes().slice(0, self.dim() - 1));
}

}  // namespace

// (self, k, dim, keepdim, *, values, indices)
Inferred kthvalue(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dim = wrapped_dim(arguments[2].toInt(), self.dim());
  if (!dim || !is_ordered(self.scalar_type()) || self.numel() == 0) return std::nullopt;
  const std::int64_t k = arguments[1].toInt(), length = self.dim() > 0 ? self.size(*dim) : 1;
  if (k < 1 || k > length) return std::nullopt;
  return selected(self, *dim, arguments[3].toBool());
}

// (self, dim, keepdim, *, values, indices)
Inferred median(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dim = wrapped_dim(arguments[1].toInt(), self.dim());
  if (!dim || !is_ordered(self.scalar_type()) || self.numel() == 0) return std::nullopt;
  return selected(self, *dim, arguments[2].toBool());
}

// (self, dim)
Inferred logcumsumexp(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dtype = self.scalar_type();
  const bool known = is_floating(dtype) || is_complex(dtype);
  if (!known || !wrapped_dim(arguments[1].toInt(), self.dim())) return std::nullopt;
  return {{Geometry(dtype, self.sizes())}};
}

// (self, *, size, fill_value)
Inferred nonzero_static(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const std::int64_t rows = arguments[1].toInt();
  if (rows < 0) return std::nullopt;
  return {{Geometry(c10::kLong, {rows, self.dim()})}};
}

// (self, bins, *, range, weight, density)
Inferred histogram_of_count(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const std::int64_t bins = arguments[1].toInt();
  const at::Tensor weight = optional_tensor_at(arguments, 3);
  if (!is_real(self.scalar_type()) || bins < 1) return std::nullopt;
  if (weight.defined() &&
      (weight.scalar_type() != self.scalar_type() || weight.sizes() != self.sizes())) {
    return std::nullopt;
  }
  // A range is checked by what it says: the operator itself does that.
  if (!arguments[2].isNone()) {
    const auto range = arguments[2].toDoubleVector();
    if (range.size() != 2 || !(range[0] <= range[1])) return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), {bins}), Geometry(self.scalar_type(), {bins + 1})}};
}

// (self, bins, *, weight, density)
Inferred histogram_of_edges(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &bins = tensor_at(arguments, 1);
  const at::Tensor weight = optional_tensor_at(arguments, 2);
  if (!is_real(self.scalar_type()) || bins.scalar_type() != self.scalar_type() || bins.dim() != 1 ||
      bins.numel() < 1) {
    return std::nullopt;
  }
  if (weight.defined() &&
      (weight.scalar_type() != self.scalar_type() || weight.sizes() != self.sizes())) {
    return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), {bins.numel() - 1}),
           Geometry(self.scalar_type(), {bins.numel()})}};
}

// (self, bins, *, range, weight, density)
Inferred histogram_of_counts(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const at::DimVector bins = arguments[1].toDimVector();
  if (self.dim() < 2 || !is_real(self.scalar_type()) || !arguments[2].isNone() ||
      static_cast<std::int64_t>(bins.size()) != self.size(-1) ||
      std::ranges::any_of(bins, [](std::int64_t count) { return count < 1; }) ||
      !has_weights_like(self, optional_tensor_at(arguments, 3), points_of(self))) {
    return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), bins)}};
}

// (self, bins, *, weight, density)
Inferred histogram_of_many_edges(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (self.dim() < 2 || !is_real(self.scalar_type())) return std::nullopt;
  at::DimVector sizes;
  for (const at::Tensor& edges : arguments[1].toTensorList()) {
    if (edges.dim() != 1 || edges.numel() < 1 || edges.scalar_type() != self.scalar_type()) {
      return std::nullopt;
    }
    sizes.push_back(edges.numel() - 1);
  }
  if (static_cast<std::int64_t>(sizes.size()) != self.size(-1) ||
      !has_weights_like(self, optional_tensor_at(arguments, 2), points_of(self))) {
    return std::nullopt;
  }
  return {{Geometry(self.scalar_type(), sizes)}};
}

// (self, dim, keepdim)
Inferred mode(Arguments arguments) { return median(arguments); }

// (self)
Inferred whole_median(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_ordered(self.scalar_type()) || self.numel() == 0) return std::nullopt;
  return {{Geometry(self.scalar_type(), {})}};
}

// (self, *, dtype)
Inferred product(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_real(self.scalar_type()) || !arguments[1].isNone()) return std::nullopt;
  return {{Geometry(self.scalar_type(), {})}};
}

// (self)
Inferred trace(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_real(self.scalar_type()) || self.dim() != 2) return std::nullopt;
  return {{Geometry(self.scalar_type(), {})}};
}

// (self, dim, *, correction, keepdim)
Inferred std_mean(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_floating(self.scalar_type()) || self.numel() == 0) return std::nullopt;
  const at::DimVector dims = arguments[1].isNone() ? at::DimVector() : arguments[1].toDimVector();
  std::vector<bool> reduced(static_cast<std::size_t>(std::max<std::int64_t>(self.dim(), 1)),
                            dims.empty());
  for (const std::int64_t given : dims) {
    const auto dim = wrapped_dim(given, self.dim());
    if (!dim || reduced[static_cast<std::size_t>(*dim)]) return std::nullopt;
    reduced[static_cast<std::size_t>(*dim)] = true;
  }
  at::DimVector sizes;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (!reduced[static_cast<std::size_t>(d)]) {
      sizes.push_back(self.size(d));
    } else if (arguments[3].toBool()) {
      sizes.push_back(1);
    }
  }
  const Geometry geometry(self.scalar_type(), sizes);
  return {{geometry, geometry}};
}

// (self, bins, min, max)
Inferred histc(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const std::int64_t bins = arguments[1].toInt();
  const double low = arguments[2].toScalar().toDouble(), high = arguments[3].toScalar().toDouble();
  if (!is_real(self.scalar_type()) || bins < 1 || !(low <= high)) return std::nullopt;
  return {{Geometry(self.scalar_type(), {bins})}};
}

// (sorted_sequence, self, *, out_int32, right, side, sorter)
Inferred searchsorted(Arguments arguments) {
  const at::Tensor &edges = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  if (!is_ordered(edges.scalar_type()) || self.scalar_type() != edges.scalar_type() ||
      edges.dim() == 0 || edges.numel() == 0 || edges.numel() > kMostEdges ||
      !arguments[4].isNone() || !arguments[5].isNone()) {
    return std::nullopt;
  }
  const bool one_list = edges.dim() == 1;
  if (!one_list && (self.dim() != edges.dim() || edges.sizes().slice(0, edges.dim() - 1) !=
                                                     self.sizes().slice(0, edges.dim() - 1))) {
    return std::nullopt;
  }
  return {{Geometry(arguments[2].toBool() ? c10::kInt : c10::kLong, self.sizes())}};
}

// (self, boundaries, *, out_int32, right)
Inferred bucketize(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &edges = tensor_at(arguments, 1);
  TORCH_CHECK(edges.dim() == 1);
  if (!is_ordered(edges.scalar_type()) || self.scalar_type() != edges.scalar_type() ||
      edges.numel() == 0 || edges.numel() > kMostEdges) {
    return std::nullopt;
  }
  return {{Geometry(arguments[2].toBool() ? c10::kInt : c10::kLong, self.sizes())}};
}

}  // namespace loom::ops::inference
