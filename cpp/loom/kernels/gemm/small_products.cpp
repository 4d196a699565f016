// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/small_products.h"

#include "loom/simd/vector_bytes.h"

#include <cstring>
#include <type_traits>

namespace loom::kernels::gemm::LOOM_SIMD {
namespace {

/// Numbers that are summed up as they are.
template <class T>
constexpr bool kPlain = std::is_same_v<T, Sum<T>>;

/// One of the batch.
template <class T>
struct Item {
  Batch<T> result;
  Batch<const T> addend, left, right;
};

/// Writes sums of one row, from (row, column) on.
template <int kColumns, class T>
[[gnu::always_inline]] inline void store(const SmallProducts<T>& p, const Item<T>& item,
                                         const Sum<T>* sums, std::int64_t row,
                                         std::int64_t column) {
  for (int j = 0; j < kColumns; ++j) {
    Sum<T> sum = p.alpha * sums[j];
    if (p.beta != 0) sum += p.beta * simd::widen(item.addend.at(row, column + j));
    simd::round_to(item.result.at(row, column + j), sum);
  }
}

/// kRows x kColumns elements of one product, from (row, column) on, a vector for each row. `right`
/// has dense rows `ld` apart.
template <int kRows, int kColumns, class T>
[[gnu::always_inline]] inline void multiply_part(const SmallProducts<T>& p, const Item<T>& item,
                                                 const Sum<T>* right, std::int64_t ld,
                                                 std::int64_t row, std::int64_t column) {
  using Vector [[gnu::vector_size(kColumns * sizeof(Sum<T>))]] = Sum<T>;
  Vector sums[kRows] = {};
  for (std::int64_t k = 0; k < p.inner; ++k) {
    Vector from;
    std::memcpy(&from, right + k * ld + column, sizeof(Vector));
    for (int i = 0; i < kRows; ++i) {
      sums[i] += simd::widen(item.left.at(row + i, k)) * from;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    if constexpr (kPlain<T>) {
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
[[gnu::always_inline]] inline void multiply_vectors(const SmallProducts<T>& p, const Item<T>& item,
                                                    const Sum<T>* right, std::int64_t ld,
                                                    std::int64_t column) {
  std::int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4) multiply_part<4, kColumns>(p, item, right, ld, row, column);
  for (; row < p.rows; ++row) multiply_part<1, kColumns>(p, item, right, ld, row, column);
}

/// ... or which are not.
template <int kColumns, class T>
[[gnu::always_inline]] inline void multiply_columns(const SmallProducts<T>& p, const Item<T>& item,
                                                    const Sum<T>* right, std::int64_t ld,
                                                    std::int64_t column) {
  for (std::int64_t i = 0; i < p.rows; ++i) {
    Sum<T> sums[kColumns] = {};
    for (std::int64_t k = 0; k < p.inner; ++k) {
      const auto factor = simd::widen(item.left.at(i, k));
      for (int j = 0; j < kColumns; ++j) sums[j] += factor * right[k * ld + column + j];
    }
    store<kColumns>(p, item, sums, i, column);
  }
}

template <class T>
[[gnu::always_inline]] inline void multiply_item(const SmallProducts<T>& p, std::int64_t number) {
  const Item<T> item{p.result.of(number), p.addend.of(number), p.left.of(number),
                     p.right.of(number)};
  const Batch<const T>& right = item.right;
  Sum<T> copy[kMostProduct];
  const Sum<T>* rows = copy;
  std::int64_t ld = p.columns;
  bool copies = true;
  if constexpr (kPlain<T>) {
    copies = right.column != 1;
    if (!copies) {
      rows = right.data;
      ld = right.row;
    }
  }
  if (copies) {
    for (std::int64_t k = 0; k < p.inner; ++k) {
      for (std::int64_t j = 0; j < p.columns; ++j) {
        copy[k * ld + j] = simd::widen(right.at(k, j));
      }
    }
  }
  constexpr int kVector = simd::kVectorBytes / sizeof(Sum<T>);
  std::int64_t column = 0;
  for (; column + kVector <= p.columns; column += kVector) {
    multiply_vectors<kVector>(p, item, rows, ld, column);
  }
  if constexpr (kVector > 8) {
    for (; column + 8 <= p.columns; column += 8) multiply_vectors<8>(p, item, rows, ld, column);
  }
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
[[gnu::always_inline]] inline void multiply_each(const SmallProducts<T>& p, std::int64_t begin,
                                                 std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) multiply_item(p, i);
}

}  // namespace

#define LOOM_MULTIPLY_ITEMS(T)                                                                    \
  void multiply_items(const SmallProducts<T>& p, std::int64_t begin, std::int64_t end) noexcept { \
    multiply_each(p, begin, end);                                                                 \
  }
LOOM_MULTIPLY_ITEMS(float)
LOOM_MULTIPLY_ITEMS(double)
LOOM_MULTIPLY_ITEMS(simd::Half)
LOOM_MULTIPLY_ITEMS(simd::BFloat16)
#undef LOOM_MULTIPLY_ITEMS

}  // namespace loom::kernels::gemm::LOOM_SIMD
