// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/matrix_vector.h"

#include "loom/base/blocks.h"
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
// Fewer elements of the result are no vectors.
constexpr std::int64_t kFewest = 8;
constexpr std::int64_t kShortRow = 64;
// Longer sums are added in parts, and those of few columns, of which there are no blocks to share.
// Parts have so many summands at the least.
constexpr std::int64_t kLongest = 32768, kLeastPart = 1024;
// Of an element, which comes from memory, where an addition of a large vector costs 1.
constexpr double kElementCost = 0.3;

struct Factors {
  double beta, alpha;
};

template <class T>
using Sum = kernels::gemm::WeightedSum<T>;

/// Room for so many sums, until the thread's next call.
template <class T>
Sum<T>* sum_scratch(std::int64_t count) {
  return reinterpret_cast<Sum<T>*>(row_scratch(count * (sizeof(Sum<T>) / sizeof(float)), 1));
}

bool is_plain(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() == dtype && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

template <class T>
void put_sums(const Sum<T>* sums, std::int64_t count, const T* addend, std::int64_t addend_step,
              Factors by, T* to) {
  const auto beta = static_cast<Sum<T>>(by.beta), alpha = static_cast<Sum<T>>(by.alpha);
  for (std::int64_t i = 0; i < count; ++i) {
    const Sum<T> own = beta == 0 ? 0 : beta * simd::widen(addend[i * addend_step]);
    simd::round_to(to[i], own + alpha * sums[i]);
  }
}

/// The step from an addend of one element of the result to the next.
std::int64_t step_of(const TensorRef& addend, std::int64_t elements) {
  return addend.dim() == 1 && addend.sizes()[0] == elements ? addend.strides()[0] : 0;
}

/// The length of the parts of a sum, of which one takes `cost` for each summand.
std::int64_t part_length(std::int64_t summands, bool shares, double cost) {
  if (summands <= kLongest && !shares) return summands;
  return std::max(kLeastPart, block_length(summands, cost));
}

/// Adds up the sums of parts, `count` of each, in their order.
template <class S>
void add_parts(const std::vector<S>& sums, std::int64_t parts, std::int64_t count,
               std::int64_t begin, std::int64_t length, S* to) {
  std::copy_n(sums.data() + begin, length, to);
  for (std::int64_t part = 1; part < parts; ++part) {
    const S* const next = sums.data() + part * count + begin;
    for (std::int64_t i = 0; i < length; ++i) to[i] += next[i];
  }
}

template <class T>
void sum_rows(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& matrix,
              const TensorRef& vector, Factors by) {
  const std::int64_t columns = matrix.sizes()[0], rows = matrix.sizes()[1];
  const std::int64_t stride = matrix.strides()[1], step = vector.strides()[0];
  std::vector<Sum<T>> weights(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    weights[static_cast<std::size_t>(r)] = simd::widen(elements<const T>(vector)[r * step]);
  }
  const std::int64_t addend_step = step_of(addend, columns);
  const Blocks across(columns,
                      std::clamp(block_length(columns, kElementCost * static_cast<double>(rows)),
                                 kLeastColumns, kMostColumns));
  const Blocks down(rows, part_length(rows, columns < 2 * kLeastColumns,
                                      kElementCost * static_cast<double>(columns)));
  const auto finish = [&](const Blocks::Range& block, const Sum<T>* sums) {
    put_sums(sums, block.count(), elements<const T>(addend) + block.first * addend_step,
             addend_step, by, elements<T>(result) + block.first);
  };
  std::vector<Sum<T>> parts(
      static_cast<std::size_t>(down.count() > 1 ? down.count() * columns : 0));
  grid.run_by_any(across.count() * down.count(), [&](std::int64_t index) {
    const auto block = across[index % across.count()], part = down[index / across.count()];
    Sum<T>* const sums =
        parts.empty()
            ? sum_scratch<T>(block.count())
            : &parts[static_cast<std::size_t>(index / across.count() * columns + block.first)];
    std::fill_n(sums, block.count(), Sum<T>(0));
    kernels::gemm::add_weighted_rows<T>(
        elements<const T>(matrix) + part.first * stride + block.first, stride,
        weights.data() + part.first, part.count(), block.count(), sums);
    if (parts.empty()) finish(block, sums);
  });
  if (parts.empty()) return;
  grid.run_by_any(across.count(), [&](std::int64_t index) {
    Sum<T>* const sums = sum_scratch<T>(across[index].count());
    add_parts(parts, down.count(), columns, across[index].first, across[index].count(), sums);
    finish(across[index], sums);
  });
}

template <class T>
void multiply_rows_by_vector(Grid& grid, const TensorRef& result, const TensorRef& addend,
                             const TensorRef& matrix, const TensorRef& vector, Factors by) {
  const std::int64_t rows = matrix.sizes()[0], columns = matrix.sizes()[1];
  const std::int64_t stride = matrix.strides()[0], addend_step = step_of(addend, rows);
  const Blocks down(rows, block_length(rows, kElementCost * static_cast<double>(columns)));
  const Blocks across(columns, part_length(columns, false, kElementCost));
  const auto multiply = [&](const Blocks::Range& block, const Blocks::Range& part, float* sums) {
    kernels::gemm::dot_rows<T>(elements<const T>(vector) + part.first,
                               elements<const T>(matrix) + block.first * stride + part.first,
                               stride, block.count(), part.count(), sums);
  };
  const auto finish = [&](const Blocks::Range& block, const float* sums) {
    put_sums(sums, block.count(), elements<const T>(addend) + block.first * addend_step,
             addend_step, by, elements<T>(result) + block.first);
  };
  if (across.count() == 1) {
    return grid.run_by_any(down.count(), [&](std::int64_t index) {
      float* const sums = row_scratch(down[index].count(), 1);
      multiply(down[index], across[0], sums);
      finish(down[index], sums);
    });
  }
  std::vector<float> parts(static_cast<std::size_t>(across.count() * rows));
  grid.run_by_any(across.count() * down.count(), [&](std::int64_t index) {
    const auto block = down[index / across.count()];
    const std::int64_t part = index % across.count();
    multiply(block, across[part], &parts[static_cast<std::size_t>(part * rows + block.first)]);
  });
  std::vector<float> sums(static_cast<std::size_t>(rows));
  add_parts(parts, across.count(), rows, 0, rows, sums.data());
  finish({0, rows}, sums.data());
}

void start(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& matrix,
           const TensorRef& vector, Factors by, bool has_rows) {
  if (result.dtype() == c10::kDouble) {
    return sum_rows<double>(grid, result, addend, matrix, vector, by);
  }
  with_floats(result.dtype(), [&]<class E>(E) {
    const auto run = has_rows ? multiply_rows_by_vector<Stored<E>> : sum_rows<Stored<E>>;
    run(grid, result, addend, matrix, vector, by);
  });
}

/// Rows of float16 ATen multiplies one by one; of others it is as fast with narrower vectors, and
/// of float32 with short rows and of float64.
bool has_fast_rows(c10::ScalarType dtype, std::int64_t columns) {
  if (dtype == c10::kDouble) return false;
  if (dtype == c10::kFloat && columns < kShortRow) return false;
  const SimdLevel least = dtype == c10::kHalf ? SimdLevel::kAvx2 : SimdLevel::kAvx512;
  return simd_level() >= least;
}

}  // namespace

bool launch_matrix_vector(const char* name, const at::Tensor& result, const at::Tensor& addend,
                          const at::Tensor& matrix, const at::Tensor& vector,
                          const c10::Scalar& beta, const c10::Scalar& alpha) {
  const auto dtype = result.scalar_type();
  if (!c10::isFloatingType(dtype) || c10::elementSize(dtype) < 2 || beta.isComplex() ||
      alpha.isComplex() || alpha.equal(0) || !is_plain(addend, dtype) || !is_plain(matrix, dtype) ||
      !is_plain(vector, dtype) || result.is_neg()) {
    return false;
  }
  const std::int64_t elements = matrix.size(0), summed = matrix.size(1);
  if (elements == 0 || summed < 2 || !result.is_contiguous()) return false;
  const bool has_rows = has_fast_rows(dtype, summed) && matrix.stride(1) == 1 &&
                        matrix.stride(0) >= summed && vector.is_contiguous();
  const bool has_columns =
      elements >= kFewest && matrix.stride(0) == 1 && matrix.stride(1) >= elements;
  if (!has_rows && !has_columns) return false;
  launch(name, Custom{}, start, out(result), addend, matrix, vector,
         Factors{beta.toDouble(), alpha.toDouble()}, has_rows);
  return true;
}

}  // namespace loom::ops
