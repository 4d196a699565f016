// SPDX-License-Identifier: BSD-3-Clause
// Operators on elements that have no structured form.
#include "loom/ops/meta/rule.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

namespace loom::ops::inference {
namespace {

Inferred one(const std::optional<Geometry>& geometry) {
  if (!geometry) return std::nullopt;
  return {{*geometry}};
}

Geometry like(const at::Tensor& tensor, c10::ScalarType dtype) {
  Geometry geometry = Geometry::like(tensor);
  geometry.dtype = dtype;
  return geometry;
}

// Slopes are given one for each channel, with dimensions of one element for all others.
bool slopes_fit(const at::Tensor& self, const at::Tensor& weight) {
  return is_floating(self.scalar_type()) && weight.scalar_type() == self.scalar_type() &&
         at::is_expandable_to(weight.sizes(), self.sizes());
}

// Whether tensors of the dtype may be multiplied by the number.
bool scales(c10::ScalarType dtype, const c10::IValue& number) {
  if (is_complex(dtype)) return true;
  if (is_floating(dtype)) return !number.isComplexDouble();
  return c10::isIntegralType(dtype, /*includeBool=*/false) && number.isInt();
}

}  // namespace

Inferred pointwise_of_first(Arguments arguments) {
  return one(pointwise({tensor_at(arguments, 0)}));
}

// (self)
Inferred angle(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_complex(self.scalar_type())) return one(pointwise({self}));
  return {{Geometry(c10::toRealValueType(self.scalar_type()), self.sizes())}};
}

// (self)
Inferred log_sigmoid(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_floating(self.scalar_type())) return std::nullopt;
  const Geometry geometry(self.scalar_type(), self.sizes());
  return {{geometry, geometry}};
}

// (grad_output, self, buffer)
Inferred log_sigmoid_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1),
                   &buffer = tensor_at(arguments, 2);
  const auto dtype = gradient.scalar_type();
  if (!is_floating(dtype) || self.scalar_type() != dtype || buffer.scalar_type() != dtype ||
      self.sizes() != gradient.sizes() || buffer.sizes() != gradient.sizes()) {
    return std::nullopt;
  }
  return {{Geometry::like(gradient)}};
}

// (grad_output, self, dim)
Inferred glu_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  const auto dim = wrapped_dim(arguments[2].toInt(), self.dim());
  if (!dim || self.dim() == 0 || !is_floating(self.scalar_type()) ||
      gradient.scalar_type() != self.scalar_type() || self.size(*dim) % 2 != 0) {
    return std::nullopt;
  }
  at::DimVector half(self.sizes());
  half[*dim] /= 2;
  if (gradient.sizes() != c10::IntArrayRef(half)) return std::nullopt;
  return {{Geometry(self.scalar_type(), self.sizes())}};
}

// (self, weight)
Inferred prelu(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!slopes_fit(self, tensor_at(arguments, 1))) return std::nullopt;
  return {{Geometry::like(self)}};
}

// (grad_output, self, weight)
Inferred prelu_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &self = tensor_at(arguments, 1);
  if (!slopes_fit(self, tensor_at(arguments, 2)) || gradient.sizes() != self.sizes() ||
      gradient.scalar_type() != self.scalar_type()) {
    return std::nullopt;
  }
  return {{Geometry::like(self), Geometry::like(self)}};
}

// (self, *, mantissa, exponent)
Inferred frexp(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dtype = self.scalar_type();
  if (!is_real(dtype) && dtype != c10::kHalf) return std::nullopt;
  return {{Geometry::like(self), like(self, c10::kInt)}};
}

// (self, *, out)
Inferred conj_physical(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_complex(self.scalar_type())) return std::nullopt;
  return {{Geometry::like(self)}};
}

// (self, vec1, vec2, *, beta, alpha), whose Meta kernel leaves out `self` where beta is 0.
Inferred outer_product(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &rows = tensor_at(arguments, 1),
                   &columns = tensor_at(arguments, 2);
  const auto dtype = self.scalar_type();
  if (rows.dim() != 1 || columns.dim() != 1 || rows.scalar_type() != dtype ||
      columns.scalar_type() != dtype || !scales(dtype, arguments[3]) ||
      !scales(dtype, arguments[4])) {
    return std::nullopt;
  }
  const at::DimVector sizes{rows.numel(), columns.numel()};
  if (!at::is_expandable_to(self.sizes(), sizes)) return std::nullopt;
  if (is_canonical(self)) return {{Geometry(dtype, sizes)}};
  const auto placed = [&](c10::IntArrayRef lengths, c10::IntArrayRef strides) {
    return at::detail::empty_strided_meta(lengths, strides, dtype);
  };
  const auto expanded = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), sizes);
  const at::TensorIterator iterator =
      at::TensorIteratorConfig()
          .set_check_mem_overlap(false)
          .add_owned_output(at::Tensor())
          .add_owned_const_input(placed(sizes, expanded.strides))
          .add_owned_const_input(placed({rows.numel(), 1}, {rows.stride(0), rows.stride(0)}))
          .add_owned_const_input(placed(columns.sizes(), columns.strides()))
          .build();
  const at::Tensor& made = iterator.output();
  return {{Geometry(dtype, sizes, at::DimVector(made.strides()))}};
}

}  // namespace loom::ops::inference
