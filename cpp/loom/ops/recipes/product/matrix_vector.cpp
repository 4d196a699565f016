// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/matrix_vector.h"

#include "loom/base/ceil_div.h"
#include "loom/base/simd_level.h"
#include "loom/kernels/gemm/dot_rows.h"
#include "loom/kernels/gemm/weighted_rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/split.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

// A block reads so many elements of a row at the least: a page of memory, or most of it.
constexpr std::int64_t kLeastColumns = 256, kMostColumns = 4096;
// Fewer elements of the result are no vectors, longer sums want to be added in parts.
constexpr std::int64_t kFewest = 64, kLongest = 32768;
// Of an element, which comes from memory, where an addition of a large vector costs 1.
constexpr double kElementCost = 0.3;

struct Factors {
  float beta, alpha;
};

bool is_plain(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() == dtype && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

template <class T>
void put_sums(const float* sums, std::int64_t count, const T* addend, std::int64_t addend_step,
              Factors by, T* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float own = by.beta == 0 ? 0 : by.beta * simd::widen(addend[i * addend_step]);
    simd::round_to(to[i], own + by.alpha * sums[i]);
  }
}

/// The step from an addend of one element of the result to the next.
std::int64_t step_of(const TensorRef& addend, std::int64_t elements) {
  return addend.dim() == 1 && addend.sizes()[0] == elements ? addend.strides()[0] : 0;
}

template <class T>
void sum_rows(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& matrix,
              const TensorRef& vector, Factors by) {
  const std::int64_t columns = matrix.sizes()[0], rows = matrix.sizes()[1];
  const std::int64_t stride = matrix.strides()[1], step = vector.strides()[0];
  std::vector<float> weights(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    weights[static_cast<std::size_t>(r)] = simd::widen(elements<const T>(vector)[r * step]);
  }
  const std::int64_t addend_step = step_of(addend, columns);
  const std::int64_t block = std::clamp(
      block_length(columns, kElementCost * static_cast<double>(rows)), kLeastColumns, kMostColumns);
  grid.run_by_any(ceil_div(columns, block), [&](std::int64_t index) {
    const std::int64_t begin = index * block, count = std::min(block, columns - begin);
    float* const sums = row_scratch(count, 1);
    std::fill_n(sums, count, 0.F);
    kernels::gemm::add_weighted_rows<T>(elements<const T>(matrix) + begin, stride, weights.data(),
                                        rows, count, sums);
    put_sums(sums, count, elements<const T>(addend) + begin * addend_step, addend_step, by,
             elements<T>(result) + begin);
  });
}

void multiply_rows(Grid& grid, const TensorRef& result, const TensorRef& addend,
                   const TensorRef& matrix, const TensorRef& vector, Factors by) {
  using T = simd::BFloat16;
  const std::int64_t rows = matrix.sizes()[0], columns = matrix.sizes()[1];
  const std::int64_t stride = matrix.strides()[0], addend_step = step_of(addend, rows);
  const std::int64_t block = block_length(rows, kElementCost * static_cast<double>(columns));
  grid.run_by_any(ceil_div(rows, block), [&](std::int64_t index) {
    const std::int64_t begin = index * block, count = std::min(block, rows - begin);
    float* const sums = row_scratch(count, 1);
    kernels::gemm::dot_rows<T>(elements<const T>(vector),
                               elements<const T>(matrix) + begin * stride, stride, count, columns,
                               sums);
    put_sums(sums, count, elements<const T>(addend) + begin * addend_step, addend_step, by,
             elements<T>(result) + begin);
  });
}

void start(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& matrix,
           const TensorRef& vector, Factors by) {
  with_floats(result.dtype(),
              [&]<class E>(E) { sum_rows<Stored<E>>(grid, result, addend, matrix, vector, by); });
}

}  // namespace

bool launch_matrix_vector(const char* name, const at::Tensor& result, const at::Tensor& addend,
                          const at::Tensor& matrix, const at::Tensor& vector,
                          const c10::Scalar& beta, const c10::Scalar& alpha) {
  const auto dtype = result.scalar_type();
  if ((dtype != c10::kFloat && !c10::isReducedFloatingType(dtype)) || beta.isComplex() ||
      alpha.isComplex() || alpha.equal(0) || !is_plain(addend, dtype) || !is_plain(matrix, dtype) ||
      !is_plain(vector, dtype) || result.is_neg()) {
    return false;
  }
  const std::int64_t elements = matrix.size(0), summed = matrix.size(1);
  if (elements == 0 || summed < 2 || summed > kLongest || !result.is_contiguous()) return false;
  const Factors by{beta.to<float>(), alpha.to<float>()};
  // Of narrower vectors ATen's are as fast.
  if (dtype == c10::kBFloat16 && simd_level() >= SimdLevel::kAvx512 && matrix.stride(1) == 1 &&
      matrix.stride(0) >= summed && vector.is_contiguous()) {
    launch(name, Custom{}, multiply_rows, out(result), addend, matrix, vector, by);
    return true;
  }
  if (elements < kFewest || matrix.stride(0) != 1 || matrix.stride(1) < elements) return false;
  launch(name, Custom{}, start, out(result), addend, matrix, vector, by);
  return true;
}

}  // namespace loom::ops
