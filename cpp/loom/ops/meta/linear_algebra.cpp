// SPDX-License-Identifier: BSD-3-Clause
// Factorisations and solvers of LAPACK: matrices come back with their columns together. What they
// say of the data (info, values that are not finite) is an error of the command.
#include "loom/ops/meta/rule.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>

namespace loom::ops::inference {
namespace {

bool is_matrix(const at::Tensor& tensor) {
  return tensor.dim() >= 2 && (is_real(tensor.scalar_type()) || is_complex(tensor.scalar_type()));
}

at::DimVector batch_of(const at::Tensor& matrices) {
  return at::DimVector(matrices.sizes().slice(0, matrices.dim() - 2));
}

at::DimVector with(c10::IntArrayRef batch, std::initializer_list<std::int64_t> more) {
  at::DimVector sizes(batch);
  sizes.append(more.begin(), more.end());
  return sizes;
}

/// The factors of Householder's reflections belong to these matrices.
bool reflections_fit(const at::Tensor& matrices, const at::Tensor& factors) {
  if (!is_matrix(matrices) || factors.scalar_type() != matrices.scalar_type()) return false;
  if (factors.dim() != matrices.dim() - 1) return false;
  return factors.sizes().slice(0, factors.dim() - 1) == c10::IntArrayRef(batch_of(matrices));
}

std::optional<std::vector<std::int64_t>> broadcast(c10::IntArrayRef a, c10::IntArrayRef b) {
  const std::size_t count = std::max(a.size(), b.size());
  std::vector<std::int64_t> sizes(count);
  for (std::size_t i = 1; i <= count; ++i) {
    const std::int64_t from_a = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t from_b = i <= b.size() ? b[b.size() - i] : 1;
    if (from_a != from_b && from_a != 1 && from_b != 1) return std::nullopt;
    sizes[count - i] = from_a == 1 ? from_b : from_a;
  }
  return sizes;
}

/// Points in rows, of which two sets have distances.
bool are_points(const at::Tensor& a, const at::Tensor& b) {
  return is_real(a.scalar_type()) && b.scalar_type() == a.scalar_type() && a.dim() >= 2 &&
         b.dim() >= 2 && a.size(-1) == b.size(-1) && a.numel() > 0 && b.numel() > 0;
}

}  // namespace

// (self)
Inferred eig(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_matrix(self) || self.size(-1) != self.size(-2)) return std::nullopt;
  const auto dtype = c10::toComplexType(self.scalar_type());
  return {{Geometry(dtype, self.sizes().slice(0, self.dim() - 1)),
           Geometry::column_major(dtype, self.sizes())}};
}

// (self)
Inferred geqrf(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_matrix(self)) return std::nullopt;
  const auto dtype = self.scalar_type();
  return {{Geometry::column_major(dtype, self.sizes()),
           Geometry(dtype, with(batch_of(self), {std::min(self.size(-2), self.size(-1))}))}};
}

// (input, tau)
Inferred householder_product(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &tau = tensor_at(arguments, 1);
  if (!reflections_fit(self, tau) || self.size(-2) < self.size(-1) ||
      self.size(-1) < tau.size(-1)) {
    return std::nullopt;
  }
  return {{Geometry::column_major(self.scalar_type(), self.sizes())}};
}

// (self, tau, other, left, transpose)
Inferred ormqr(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &tau = tensor_at(arguments, 1),
                   &other = tensor_at(arguments, 2);
  if (!reflections_fit(self, tau) || !is_matrix(other) || other.dim() != self.dim() ||
      other.scalar_type() != self.scalar_type() || batch_of(other) != batch_of(self)) {
    return std::nullopt;
  }
  const std::int64_t side = other.size(arguments[3].toBool() ? -2 : -1);
  if (side < tau.size(-1) || side != self.size(-2) || self.size(-1) < tau.size(-1)) {
    return std::nullopt;
  }
  return {{Geometry::column_major(self.scalar_type(), other.sizes())}};
}

// (self, B, *, upper, left, unitriangular)
Inferred solve_triangular(Arguments arguments) {
  const at::Tensor &matrix = tensor_at(arguments, 0), &right = tensor_at(arguments, 1);
  if (!is_matrix(matrix) || !is_matrix(right) || matrix.scalar_type() != right.scalar_type() ||
      matrix.size(-1) != matrix.size(-2)) {
    return std::nullopt;
  }
  const bool left = arguments[3].toBool();
  if (matrix.size(-1) != right.size(left ? -2 : -1)) return std::nullopt;
  const auto batch = broadcast(batch_of(right), batch_of(matrix));
  if (!batch) return std::nullopt;
  const at::DimVector sizes = with(*batch, {right.size(-2), right.size(-1)});
  // ATen solves for the conjugate in the rows' order where the matrix need not be copied for that.
  const bool transposed =
      matrix.is_conj() &&
      matrix.expand(with(*batch, {matrix.size(-2), matrix.size(-1)})).mT().is_contiguous();
  return {{transposed ? Geometry(matrix.scalar_type(), sizes)
                      : Geometry::column_major(matrix.scalar_type(), sizes)}};
}

// (self, b, rcond, *, driver, solution, residuals, rank, singular_values)
Inferred least_squares(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &right = tensor_at(arguments, 1);
  if (!is_matrix(self) || right.scalar_type() != self.scalar_type()) return std::nullopt;
  const std::int64_t rows = self.size(-2), columns = self.size(-1);
  const bool vectors = right.dim() == self.dim() - 1;
  if ((!vectors && right.dim() != self.dim()) || right.size(vectors ? -1 : -2) != rows ||
      self.numel() == 0 || right.numel() == 0) {
    return std::nullopt;
  }
  const at::DimVector right_batch(right.sizes().slice(0, right.dim() - (vectors ? 1 : 2)));
  const auto batch = broadcast(batch_of(self), right_batch);
  if (!batch) return std::nullopt;
  const std::string driver = arguments[3].isString() ? arguments[3].toStringRef() : "gelsy";
  const bool by_svd = driver == "gelsd" || driver == "gelss";
  if (!by_svd && driver != "gels" && driver != "gelsy") return std::nullopt;
  // Whether there are residuals depends on the rank, for those that find it.
  if (by_svd && rows > columns) return std::nullopt;

  const auto dtype = self.scalar_type(), real = c10::toRealValueType(dtype);
  const std::int64_t rights = vectors ? 1 : right.size(-1);
  // The solution lies in the first rows of a matrix with room for the residuals.
  const std::int64_t longest = std::max(rows, columns);
  Geometry solution = Geometry::column_major(dtype, with(*batch, {longest, rights}));
  solution.sizes[solution.sizes.size() - 2] = columns;
  if (vectors) {
    solution.sizes.pop_back();
    solution.strides.pop_back();
  }
  const at::DimVector none{0};
  const bool residuals = driver == "gels" && rows > columns;
  return {{std::move(solution), Geometry(real, residuals ? with(*batch, {rights}) : none),
           Geometry(c10::kLong, driver == "gels" ? none : batch_of(self)),
           Geometry(real, by_svd ? with(batch_of(self), {std::min(rows, columns)}) : none)}};
}

// (x1, x2, p, compute_mode)
Inferred cdist(Arguments arguments) {
  const at::Tensor &a = tensor_at(arguments, 0), &b = tensor_at(arguments, 1);
  if (!are_points(a, b) || !(arguments[2].toDouble() >= 0)) return std::nullopt;
  const auto batch = broadcast(batch_of(a), batch_of(b));
  if (!batch) return std::nullopt;
  return {{Geometry(a.scalar_type(), with(*batch, {a.size(-2), b.size(-2)}))}};
}

// (grad, x1, x2, p, cdist)
Inferred cdist_backward(Arguments arguments) {
  const at::Tensor &gradient = tensor_at(arguments, 0), &a = tensor_at(arguments, 1),
                   &b = tensor_at(arguments, 2), &distances = tensor_at(arguments, 4);
  if (!are_points(a, b) || gradient.sizes() != distances.sizes() ||
      gradient.scalar_type() != a.scalar_type() || distances.scalar_type() != a.scalar_type()) {
    return std::nullopt;
  }
  const auto batch = broadcast(batch_of(a), batch_of(b));
  if (!batch || distances.sizes() != c10::IntArrayRef(with(*batch, {a.size(-2), b.size(-2)}))) {
    return std::nullopt;
  }
  return {{Geometry(a.scalar_type(), with(*batch, {a.size(-2), a.size(-1)}))}};
}

// (self, batch1, batch2, *, beta, alpha)
Inferred addbmm(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &a = tensor_at(arguments, 1),
                   &b = tensor_at(arguments, 2);
  const auto dtype = self.scalar_type();
  if (!is_real(dtype) || a.scalar_type() != dtype || b.scalar_type() != dtype || a.dim() != 3 ||
      b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1) || !is_canonical(self) ||
      self.sizes() != c10::IntArrayRef({a.size(1), b.size(2)}) || self.numel() == 0 ||
      arguments[3].isComplexDouble() || arguments[4].isComplexDouble()) {
    return std::nullopt;
  }
  return {{Geometry(dtype, self.sizes())}};
}

// (self, upper)
Inferred cholesky(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  if (!is_matrix(self) || self.size(-1) != self.size(-2) || self.numel() == 0) return std::nullopt;
  return {{Geometry::column_major(self.scalar_type(), self.sizes())}};
}

// (self, A, upper)
Inferred cholesky_solve(Arguments arguments) {
  const at::Tensor &self = tensor_at(arguments, 0), &factor = tensor_at(arguments, 1);
  if (!is_matrix(self) || !is_matrix(factor) || factor.scalar_type() != self.scalar_type() ||
      factor.size(-1) != factor.size(-2) || factor.size(-1) != self.size(-2) ||
      batch_of(self) != batch_of(factor) || self.numel() == 0) {
    return std::nullopt;
  }
  return {{Geometry::column_major(self.scalar_type(), self.sizes())}};
}

}  // namespace loom::ops::inference
