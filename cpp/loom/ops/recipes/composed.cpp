// SPDX-License-Identifier: BSD-3-Clause
// Operators that ATen has CPU kernels for which are nothing but others in a row, all of which run
// here on all cores.
#include "loom/backend/registration.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/roll_native.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <optional>

namespace loom::ops {
namespace {

at::Tensor count_nonzero(const at::Tensor& self, c10::IntArrayRef dims) {
  return at::sum(at::ne(self, 0), dims);
}

/// Copies `self` to `result`, rolled along `dims`: each part goes to its place at once.
void copy_rolled(const at::Tensor& result, const at::Tensor& self, c10::IntArrayRef shifts,
                 c10::IntArrayRef dims) {
  if (dims.empty()) {
    result.copy_(self);
    return;
  }
  const std::int64_t dim = dims.front(), size = self.size(dim);
  const std::int64_t moved = ((shifts.front() % size) + size) % size, kept = size - moved;
  const auto rest = [&](const at::Tensor& to, const at::Tensor& from) {
    copy_rolled(to, from, shifts.slice(1), dims.slice(1));
  };
  rest(result.narrow(dim, moved, kept), self.narrow(dim, 0, kept));
  if (moved > 0) rest(result.narrow(dim, 0, moved), self.narrow(dim, kept, moved));
}

at::Tensor roll(const at::Tensor& self, c10::IntArrayRef shifts, c10::IntArrayRef dims) {
  // ATen rolls one dimension after the other. Two at a time are worth four copies where memory
  // bounds them, and not where the calls do.
  constexpr std::int64_t kManyElements = 1 << 15;
  const auto is_dim = [&](std::int64_t dim) { return dim >= -self.dim() && dim < self.dim(); };
  const bool two = dims.size() == 2 && shifts.size() == 2 && is_dim(dims[0]) && is_dim(dims[1]) &&
                   (dims[0] - dims[1]) % self.dim() != 0 && self.is_contiguous() &&
                   self.numel() >= kManyElements;
  if (!two) return at::native::roll(self, shifts, dims);
  at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device());
  copy_rolled(result, self, shifts, dims);
  return result;
}

// CUDA takes masks and complex numbers in half precision, too.
at::Tensor trace(const at::Tensor& self) {
  const c10::ScalarType dtype = self.scalar_type();
  if (self.dim() == 2 && (dtype == c10::kBool || dtype == c10::kComplexHalf)) {
    return at::sum(self.diagonal());
  }
  return call_fallback<at::Tensor, const at::Tensor&>("aten::trace", "", self);
}

/// A sum of products is a product of matrices that lie side by side: [a b] x [c; d] = ac + bd.
std::optional<at::Tensor> as_one_product(const at::Tensor& self, const at::Tensor& left,
                                         const at::Tensor& right, const at::Scalar& beta,
                                         const at::Scalar& alpha) {
  const c10::ScalarType dtype = self.scalar_type();
  const bool fits = left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0) &&
                    left.size(2) == right.size(1);
  const auto plain = [&](const at::Tensor& tensor) {
    return tensor.is_privateuseone() && tensor.layout() == c10::kStrided &&
           tensor.device() == self.device() && tensor.scalar_type() == dtype;
  };
  // Others are rounded, or refused, after each matrix.
  if ((dtype != c10::kFloat && dtype != c10::kDouble) || !fits || !plain(self) || !plain(left) ||
      !plain(right) || beta.isComplex() || alpha.isComplex()) {
    return std::nullopt;
  }
  const std::int64_t rows = left.size(1), inner = left.size(0) * left.size(2);
  if (!at::is_expandable_to(self.sizes(), {rows, right.size(2)})) return std::nullopt;
  return at::addmm(self, left.transpose(0, 1).reshape({rows, inner}),
                   right.reshape({inner, right.size(2)}), beta, alpha);
}

void addbmm_or_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::size_t kArguments = 5;
  const auto given = torch::jit::last(*stack, kArguments);
  const std::optional<at::Tensor> result =
      as_one_product(given[0].toTensor(), given[1].toTensor(), given[2].toTensor(),
                     given[3].toScalar(), given[4].toScalar());
  if (!result) return fallback(op, stack);
  torch::jit::drop(*stack, kArguments);
  stack->emplace_back(*result);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("count_nonzero.dim_IntList", count_nonzero);
  m.impl("roll", roll);
  m.impl("trace", trace);
  m.impl("addbmm", torch::CppFunction::makeFromBoxedFunction<&addbmm_or_fallback>());
}

}  // namespace loom::ops
