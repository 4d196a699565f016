// SPDX-License-Identifier: BSD-3-Clause
// Inner products of vectors.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/inner_product.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/dot_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/vdot_native.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace loom::ops {
namespace {

/// The CPU operator says of other dtypes that it has none.
bool has_kernel(c10::ScalarType dtype) {
  return c10::isIntegralType(dtype, /*includeBool=*/false) || at::isComplexType(dtype) ||
         dtype == c10::kFloat || dtype == c10::kDouble || c10::isReducedFloatingType(dtype);
}

/// Of dense vectors; blocks have sums in double.
template <class T>
void dense_product(Grid& grid, const at::Tensor& to, const at::Tensor& a, const at::Tensor& b,
                   std::int64_t block) {
  const std::int64_t count = a.numel();
  const T *const one = row_elements<T>(a), *const two = row_elements<T>(b);
  std::vector<double> parts(static_cast<std::size_t>(ceil_div(count, block)));
  grid.run_by_any(static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
    const std::int64_t begin = index * block;
    parts[static_cast<std::size_t>(index)] =
        kernels::gemm::inner_product<T>(one + begin, two + begin, std::min(block, count - begin));
  });
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  simd::round_to(*static_cast<T*>(to.mutable_data_ptr()), static_cast<float>(sum));
}

template <at::Tensor (*kNative)(const at::Tensor&, const at::Tensor&)>
at::Tensor inner_product(const char* name, const char* schema, const at::Tensor& self,
                         const at::Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  if (self._is_zerotensor() || other._is_zerotensor()) {
    return at::_efficientzerotensor({}, self.options());
  }
  if (!has_kernel(self.scalar_type())) [[unlikely]] {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>(schema, "", self, other);
  }
  at::Tensor result = empty({}, self.scalar_type(), self.device());
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& a, const TensorRef& b) {
    const std::int64_t count = a.numel(), block = std::max<std::int64_t>(block_length(count, 1), 1);
    if (count <= block) return void(to.alias().copy_(kNative(a.alias(), b.alias())));
    const at::Tensor one = a.alias(), two = b.alias();
    if (is_row_element(a.dtype()) && one.is_contiguous() && two.is_contiguous()) {
      return with_row_element(
          a.dtype(), [&]<class T>() { dense_product<T>(grid, to.alias(), one, two, block); });
    }
    std::vector<at::Tensor> parts(ceil_div(count, block));
    // Parts are not rounded to half: they may be larger than their sum, and than half can be.
    const c10::ScalarType dtype = at::toOpMathType(a.dtype());
    grid.run(static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
      const std::int64_t begin = index * block, length = std::min(block, count - begin);
      parts[index] = kNative(a.alias_slice(0, begin, length).to(dtype),
                             b.alias_slice(0, begin, length).to(dtype));
    });
    to.alias().copy_(at::stack(parts).sum());
  };
  launch(name, Custom{}, kernel, out(result), self, other);
  return result;
}

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  return inner_product<at::native::dot>("dot", "aten::dot", self, other);
}
at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  return inner_product<at::native::vdot>("vdot", "aten::vdot", self, other);
}
}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("dot", TORCH_FN(dot));
  m.impl("vdot", TORCH_FN(vdot));
}

}  // namespace loom::ops
