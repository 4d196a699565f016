// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/small_products.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/small_products.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/self_overlap.h"
#include "loom/ops/launch/split.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <array>

namespace loom::ops {
namespace {

using kernels::gemm::Batch;
using kernels::gemm::kMostProduct;
using kernels::gemm::Sum;

// Longer sums than this want more than one accumulator.
constexpr std::int64_t kLongest = 32;
// Of an item, in the unit of Pointwise's cost: a multiply-add, and an element that is moved.
constexpr double kMultiplyCost = 0.15, kElementCost = 1;

/// Broadcast to the sizes of the result.
template <class T>
Batch<T> batch_of(const TensorRef& tensor, const TensorRef& result) {
  std::array<std::int64_t, 3> strides{};
  const auto missing = static_cast<std::size_t>(3 - tensor.dim());
  for (std::size_t d = missing; d < 3; ++d) {
    const std::int64_t size = tensor.sizes()[d - missing];
    const bool repeats = size == 1 && result.sizes()[d] != 1;
    strides[d] = repeats ? 0 : tensor.strides()[d - missing];
  }
  return {reinterpret_cast<T*>(tensor.data()), strides[0], strides[1], strides[2]};
}

template <class T>
Batch<const T> operand_of(const TensorRef& tensor) {
  return {reinterpret_cast<const T*>(tensor.data()), tensor.strides()[0], tensor.strides()[1],
          tensor.strides()[2]};
}

template <class T>
void multiply_all(Grid& grid, const TensorRef& result, const TensorRef& addend,
                  const TensorRef& left, const TensorRef& right,
                  const SmallProductOptions& options) {
  const std::int64_t batch = result.sizes()[0];
  kernels::gemm::SmallProducts<T> p{
      .result = batch_of<T>(result, result),
      .addend = {},
      .left = operand_of<T>(left),
      .right = operand_of<T>(right),
      .rows = result.sizes()[1],
      .inner = left.sizes()[2],
      .columns = result.sizes()[2],
      .alpha = static_cast<Sum<T>>(options.alpha),
      .beta = static_cast<Sum<T>>(addend.defined() ? options.beta : 0)};
  if (addend.defined()) p.addend = batch_of<const T>(addend, result);
  const auto moved = p.rows * p.inner + p.inner * p.columns + p.rows * p.columns;
  const double cost = kMultiplyCost * static_cast<double>(p.rows * p.inner * p.columns) +
                      kElementCost * static_cast<double>(moved);
  const std::int64_t block = block_length(batch, cost);
  grid.run_by_any(ceil_div(batch, block), [&](std::int64_t i) {
    kernels::gemm::multiply_items<T>(p, i * block, std::min(batch, (i + 1) * block));
  });
}

void small_products(Grid& grid, const TensorRef& result, const TensorRef& addend,
                    const TensorRef& left, const TensorRef& right, SmallProductOptions options) {
  switch (result.dtype()) {
    case c10::ScalarType::Float:
      return multiply_all<float>(grid, result, addend, left, right, options);
    case c10::ScalarType::Double:
      return multiply_all<double>(grid, result, addend, left, right, options);
    case c10::ScalarType::BFloat16:
      return multiply_all<simd::BFloat16>(grid, result, addend, left, right, options);
    default:
      return multiply_all<simd::Half>(grid, result, addend, left, right, options);
  }
}

}  // namespace

bool suits_small_products(const at::Tensor& result, const at::Tensor& left,
                          const at::Tensor& right) {
  const c10::ScalarType dtype = result.scalar_type();
  if (result.dim() != 3 || result.size(0) < 2 || result.numel() == 0 ||
      !c10::isFloatingType(dtype) || c10::elementSize(dtype) < 2) {
    return false;
  }
  for (const at::Tensor* tensor : {&left, &right, &result}) {
    if (tensor->scalar_type() != dtype || tensor->is_neg()) return false;
  }
  const std::int64_t inner = left.size(2),
                     longest = std::max({result.size(1), inner, result.size(2)});
  return inner > 0 && longest <= kLongest &&
         result.size(1) * inner * result.size(2) <= kMostProduct &&
         !may_overlap_itself(result.sizes(), result.strides()) &&
         (dtype != c10::ScalarType::Float || can_multiply<float>());
}

void launch_small_products(const char* name, const at::Tensor& result, const at::Tensor& addend,
                           const at::Tensor& left, const at::Tensor& right,
                           const SmallProductOptions& options) {
  launch(name, Custom{}, small_products, out(result), addend, left, right, options);
}

}  // namespace loom::ops
