// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/small_products.h"

#include "loom/ops/launch.h"
#include "loom/ops/product/multiply.h"
#include "loom/ops/random/isa_clones.h"
#include "loom/ops/self_overlap.h"
#include "loom/ops/split.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace loom::ops {
namespace {

// From here on the block kernel is as fast as loops (blocked_product.cpp), and longer sums than
// this want more than one accumulator.
constexpr std::int64_t kMostProduct = 16 * 16 * 16, kLongest = 32;
// Of an item, in the unit of Pointwise's cost: a multiply-add, and an element that is moved.
constexpr double kMultiplyCost = 0.15, kElementCost = 1;

/// A matrix for each item of a batch; strides are in elements.
template <class T>
struct Batch {
  T* data = nullptr;
  std::int64_t item = 0, row = 0, column = 0;

  [[nodiscard]] T& at(std::int64_t r, std::int64_t c) const { return data[r * row + c * column]; }
  [[nodiscard]] Batch of(std::int64_t i) const { return {data + i * item, 0, row, column}; }
};

/// What numbers of a type are summed up in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
struct Problem {
  Batch<T> result;
  Batch<const T> addend, left, right;
  std::int64_t rows, inner, columns;
  Sum<T> alpha, beta;
};

/// One of the batch.
template <class T>
struct Item {
  Batch<T> result;
  Batch<const T> addend, left, right;
};

/// Writes sums of one row, from (row, column) on.
template <int kColumns, class T>
[[gnu::always_inline]] inline void store(const Problem<T>& p, const Item<T>& item,
                                         const Sum<T>* sums, std::int64_t row,
                                         std::int64_t column) {
  for (int j = 0; j < kColumns; ++j) {
    Sum<T> sum = p.alpha * sums[j];
    if (p.beta != 0) sum += p.beta * static_cast<Sum<T>>(item.addend.at(row, column + j));
    item.result.at(row, column + j) = static_cast<T>(sum);
  }
}

/// kRows x kColumns elements of one product, from (row, column) on, a vector for each row. `right`
/// has dense rows `ld` apart.
template <int kRows, int kColumns, class T>
[[gnu::always_inline]] inline void multiply_part(const Problem<T>& p, const Item<T>& item,
                                                 const Sum<T>* right, std::int64_t ld,
                                                 std::int64_t row, std::int64_t column) {
  using Vector [[gnu::vector_size(kColumns * sizeof(Sum<T>))]] = Sum<T>;
  Vector sums[kRows] = {};
  for (std::int64_t k = 0; k < p.inner; ++k) {
    Vector from;
    std::memcpy(&from, right + k * ld + column, sizeof(Vector));
    for (int i = 0; i < kRows; ++i) {
      sums[i] += static_cast<Sum<T>>(item.left.at(row + i, k)) * from;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    if constexpr (std::is_same_v<T, Sum<T>>) {
      const bool near = p.beta == 0 || item.addend.column <= 1;
      if (near && item.result.column == 1) {
        sums[i] *= p.alpha;
        if (p.beta != 0) {
          const T* const addend = &item.addend.at(row + i, column);
          Vector added = *addend - Vector{};
          if (item.addend.column == 1) std::memcpy(&added, addend, sizeof(Vector));
          sums[i] += p.beta * added;
        }
        std::memcpy(&item.result.at(row + i, column), &sums[i], sizeof(Vector));
        continue;
      }
    }
    Sum<T> of_row[kColumns];
    std::memcpy(of_row, &sums[i], sizeof(Vector));
    store<kColumns>(p, item, of_row, row + i, column);
  }
}

/// All rows of kColumns columns, which are a vector...
template <int kColumns, class T>
[[gnu::always_inline]] inline void multiply_vectors(const Problem<T>& p, const Item<T>& item,
                                                    const Sum<T>* right, std::int64_t ld,
                                                    std::int64_t column) {
  std::int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) multiply_part<4, kColumns>(p, item, right, ld, row, column);
  for (; row < p.rows; ++row) multiply_part<1, kColumns>(p, item, right, ld, row, column);
}

/// ... or which are not.
template <int kColumns, class T>
[[gnu::always_inline]] inline void multiply_columns(const Problem<T>& p, const Item<T>& item,
                                                    const Sum<T>* right, std::int64_t ld,
                                                    std::int64_t column) {
  for (std::int64_t i = 0; i < p.rows; ++i) {
    Sum<T> sums[kColumns] = {};
    for (std::int64_t k = 0; k < p.inner; ++k) {
      const auto factor = static_cast<Sum<T>>(item.left.at(i, k));
      for (int j = 0; j < kColumns; ++j) sums[j] += factor * right[k * ld + column + j];
    }
    store<kColumns>(p, item, sums, i, column);
  }
}

template <class T>
[[gnu::always_inline]] inline void multiply_item(const Problem<T>& p, std::int64_t number) {
  const Item<T> item{p.result.of(number), p.addend.of(number), p.left.of(number),
                     p.right.of(number)};
  const Batch<const T>& right = item.right;
  Sum<T> copy[kMostProduct];
  const Sum<T>* rows = copy;
  std::int64_t ld = p.columns;
  bool copies = true;
  if constexpr (std::is_same_v<T, Sum<T>>) {
    copies = right.column != 1;
    if (!copies) {
      rows = right.data;
      ld = right.row;
    }
  }
  if (copies) {
    for (std::int64_t k = 0; k < p.inner; ++k) {
      for (std::int64_t j = 0; j < p.columns; ++j) {
        copy[k * ld + j] = static_cast<Sum<T>>(right.at(k, j));
      }
    }
  }
  std::int64_t column = 0;
  for (; column + 16 <= p.columns; column += 16) multiply_vectors<16>(p, item, rows, ld, column);
  for (; column + 8 <= p.columns; column += 8) multiply_vectors<8>(p, item, rows, ld, column);
  switch (p.columns - column) {
    case 7:
      return multiply_columns<7>(p, item, rows, ld, column);
    case 6:
      return multiply_columns<6>(p, item, rows, ld, column);
    case 5:
      return multiply_columns<5>(p, item, rows, ld, column);
    case 4:
      return multiply_columns<4>(p, item, rows, ld, column);
    case 3:
      return multiply_columns<3>(p, item, rows, ld, column);
    case 2:
      return multiply_columns<2>(p, item, rows, ld, column);
    case 1:
      return multiply_columns<1>(p, item, rows, ld, column);
    default:
      return;
  }
}

template <class T>
[[gnu::always_inline]] inline void multiply_items(const Problem<T>& p, std::int64_t begin,
                                                  std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) multiply_item(p, i);
}
LOOM_ISA_CLONES void run_items(const Problem<float>& p, std::int64_t begin, std::int64_t end) {
  multiply_items(p, begin, end);
}
LOOM_ISA_CLONES void run_items(const Problem<double>& p, std::int64_t begin, std::int64_t end) {
  multiply_items(p, begin, end);
}
void run_items(const Problem<c10::BFloat16>& p, std::int64_t begin, std::int64_t end) {
  multiply_items(p, begin, end);
}
void run_items(const Problem<c10::Half>& p, std::int64_t begin, std::int64_t end) {
  multiply_items(p, begin, end);
}

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
  Problem<T> p{.result = batch_of<T>(result, result),
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
  grid.run_by_any((batch + block - 1) / block, [&](std::int64_t i) {
    run_items(p, i * block, std::min(batch, (i + 1) * block));
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
      return multiply_all<c10::BFloat16>(grid, result, addend, left, right, options);
    default:
      return multiply_all<c10::Half>(grid, result, addend, left, right, options);
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
