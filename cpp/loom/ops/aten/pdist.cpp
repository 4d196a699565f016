// SPDX-License-Identifier: BSD-3-Clause
// Distances between the rows of a matrix with ATen's CPU kernels; the gradient is cut along the
// columns, bit by bit as cpu has it. Anything unusual is left to cpu.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/native/Distance.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

// Of one element of a difference, beside an addition; each pair is taken twice.
constexpr double kBackwardCost = 8;
// The gradient's columns go through vectors: blocks are of whole cache lines.
constexpr std::int64_t kLineBytes = 64;

bool is_dense(const at::Tensor& tensor, const at::Tensor& points) {
  return tensor.is_privateuseone() && tensor.layout() == c10::kStrided &&
         tensor.device() == points.device() && tensor.scalar_type() == points.scalar_type() &&
         !tensor._is_zerotensor() && !tensor.is_neg();
}

bool are_points(const at::Tensor& self) {
  return (self.scalar_type() == c10::kFloat || self.scalar_type() == c10::kDouble) &&
         is_dense(self, self) && self.is_contiguous() && self.dim() == 2 && self.size(0) > 1 &&
         self.size(1) > 0;
}

std::int64_t pairs_of(std::int64_t rows) { return rows * (rows - 1) / 2; }

// Runs on the worker in one block: ATen's kernel is far faster than that of distances between two
// matrices, so that cutting gains nothing.
void distances(const at::Tensor& result, const at::Tensor& points, double p) {
  at::Tensor to = result;
  at::native::pdist_forward_stub(c10::kCPU, to, points, p);
}

// Runs on the worker.
void gradient_of(Grid& grid, const TensorRef& to, const TensorRef& gradient,
                 const TensorRef& points, double p, const TensorRef& distances) {
  const std::int64_t rows = points.sizes()[0], columns = points.sizes()[1];
  const std::int64_t line = kLineBytes / static_cast<std::int64_t>(points.itemsize());
  const auto pairs = static_cast<double>(pairs_of(rows));
  const std::int64_t lines = ceil_div(columns, line);
  const std::int64_t block =
      line * block_length(lines, kBackwardCost * pairs * static_cast<double>(line));
  grid.run(ceil_div(columns, block), [&](std::int64_t index) {
    const std::int64_t begin = index * block, length = std::min(block, columns - begin);
    const at::Tensor part = points.alias().narrow(1, begin, length).contiguous();
    at::Tensor result = at::empty_like(part);
    at::native::pdist_backward_stub(c10::kCPU, result, gradient.alias(), part, p,
                                    distances.alias());
    to.alias().narrow(1, begin, length).copy_(result);
  });
}

at::Tensor pdist_forward(const at::Tensor& self, double p) {
  if (!are_points(self) || !(p >= 0)) {
    return call_fallback<at::Tensor, const at::Tensor&, double>("aten::_pdist_forward", "", self,
                                                                p);
  }
  const std::int64_t rows = self.size(0);
  at::Tensor result = empty({pairs_of(rows)}, self.scalar_type(), self.device());
  launch("_pdist_forward", Whole{}, distances, out(result), self, p);
  return result;
}

at::Tensor pdist_backward(const at::Tensor& gradient, const at::Tensor& self, double p,
                          const at::Tensor& distances) {
  const bool plain = are_points(self) && is_dense(distances, self) && distances.dim() == 1 &&
                     distances.is_contiguous() && distances.numel() == pairs_of(self.size(0)) &&
                     is_dense(gradient, self) && gradient.sizes() == distances.sizes();
  if (!plain) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, double,
                         const at::Tensor&>("aten::_pdist_backward", "", gradient, self, p,
                                            distances);
  }
  at::Tensor result = empty(self.sizes(), self.scalar_type(), self.device());
  launch("_pdist_backward", Custom{}, gradient_of, out(result), gradient, self, p, distances);
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_pdist_forward", TORCH_FN(pdist_forward));
  m.impl("_pdist_backward", TORCH_FN(pdist_backward));
}

}  // namespace loom::ops
