// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One block of a product on one thread: where its sums are kept and what becomes of them. Thread:
// any; scratch memory is the calling thread's.

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/gemm/bfloat16.h"
#include "loom/kernels/gemm/rounded_panel.h"
#include "loom/kernels/norm/sums.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/blocked_product.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/product_blocks.h"
#include "loom/ops/recipes/product/product_sums.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace loom::ops::detail {

inline const Scratch t_accumulators, t_addends;

inline void activate(const at::Tensor& result, ProductActivation activation) {
  if (activation == ProductActivation::kRelu) at::relu_(const_cast<at::Tensor&>(result));
  if (activation == ProductActivation::kGelu) at::gelu_(const_cast<at::Tensor&>(result));
}

/// A block of the result and what it is made of.
template <class T, class E = T>
struct Part {
  MatrixView<T> result;
  MatrixView<const T> addend;
  MatrixView<const E> left, right;
  double beta, alpha = 1;
  bool continues = false;            ///< the result has a sum in it that this is added to
  bool few_rows = false;             ///< they meet dense columns where these lie
  std::int64_t row = 0, column = 0;  ///< where it begins in the whole result

  [[nodiscard]] bool added() const noexcept { return addend.data != nullptr && beta != 0; }
  /// Whether sums begin with the addend. Else it comes after they are multiplied by alpha: divided
  /// by alpha before, as the least number that masks are made of, it would be infinite.
  [[nodiscard]] bool begins_with_addend() const noexcept { return added() && alpha == 1; }
  [[nodiscard]] Part cut(std::int64_t row, std::int64_t column, std::int64_t rows,
                         std::int64_t columns) const {
    return {result.part(row, column, rows, columns),
            addend.part(row, column, rows, columns),
            left.part(row, 0, rows, left.columns),
            right.part(0, column, right.rows, columns),
            beta,
            alpha,
            continues,
            few_rows,
            this->row + row,
            this->column + column};
  }
};

/// What becomes of parts that are computed.
template <class T, class E = T>
struct Finish {
  const Grid& grid;
  ProductActivation activation;
  bool turned;  ///< it is the transposed product
  bool final;   ///< nothing is added to the parts

  void operator()(const Part<T, E>& p) const {
    if (activation != ProductActivation::kNone) activate(alias(p.result), activation);
    visit(p, [&](auto... rectangle) { grid.finish(rectangle...); });
  }
  /// Before it is computed: what will be written then should be in the cache.
  void prefetch(const Part<T, E>& p) const {
    visit(p, [&](auto... rectangle) { grid.prefetch(rectangle...); });
  }

 private:
  template <class Visit>
  void visit(const Part<T, E>& p, Visit&& visit) const {
    const std::int64_t rows = p.result.rows, columns = p.result.columns;
    if (!final) return;
    turned ? visit(p.column, columns, p.row, rows) : visit(p.row, rows, p.column, columns);
  }
};

// What is left to do with sums of rows that are `ld` apart.
template <class T, class E>
void finish_sums(const Part<T, E>& p, bool has_addend, float* sums, std::int64_t ld) {
  const std::int64_t rows = p.result.rows, columns = p.result.columns;
  if (p.alpha != 1) {
    const auto factor = static_cast<float>(p.alpha);
    for (std::int64_t i = 0; i < rows; ++i) {
      kernels::multiply_row<float>(sums + i * ld, factor, columns);
    }
  }
  if (!p.added() || has_addend) return;
  float* const addends = t_addends.get<float>(rows * columns);
  initialise(p.addend, p.beta, addends, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    kernels::norm::add_rows<float>(addends + i * columns, 1, columns, sums + i * ld, columns);
  }
}

/// Rows that are multiplied at a time: of narrow results more, as a call of the block kernel reads
/// what was written just before, and waits for all stores of results until then.
inline std::int64_t tile_rows(const MatrixView<const float>& left, std::int64_t columns) {
  constexpr std::int64_t kVector = 16;
  if (!has_kernel_rows(left) || left.columns > kPanel) return kTileRows;
  return kTileRows * std::max<std::int64_t>(kPanel / round_up(columns, kVector), 1);
}
inline std::int64_t tile_rows(const MatrixView<const c10::BFloat16>&, std::int64_t) {
  return kTileRows;
}

// The result is float32 and row-major: it is summed where it is, and what becomes of it is done
// while it is near: after each tile, unless sums go on or ATen is called for it.
inline void run_in_place(const Part<float>& whole, const Finish<float>& finish) {
  const auto begins = [](const Part<float>& p) {
    const bool added = p.added() && !p.continues;
    if (added) initialise(p.addend, p.beta, p.result.data, p.result.row_stride);
    return added || p.continues;
  };
  const bool plain = finish.activation == ProductActivation::kNone;
  for (std::int64_t column = 0; column < whole.right.columns; column += kMaxColumns) {
    const std::int64_t columns = std::min(kMaxColumns, whole.right.columns - column);
    const Part<float> strip = whole.cut(0, column, whole.result.rows, columns);
    if (strip.left.columns > kMaxInner<float>) {
      multiply(strip.left, strip.right, strip.result.data, strip.result.row_stride, begins(strip));
      finish(strip);
      continue;
    }
    const PackedRight<float> packed(strip.right, strip.left.rows);
    const std::int64_t tile = tile_rows(strip.left, columns);
    for (std::int64_t row = 0; row < strip.left.rows; row += tile) {
      const Part<float> p = strip.cut(row, 0, std::min(tile, strip.left.rows - row), columns);
      packed.multiply(p.left, p.result.data, p.result.row_stride, begins(p));
      if (plain) finish(p);
    }
    if (!plain) finish(strip);
  }
}

// What will be stored, so that it is in the cache by then.
inline void prefetch(const MatrixView<c10::BFloat16>& result) {
  for (std::int64_t i = 0; i < result.rows; ++i) {
    const c10::BFloat16* row = result.data + i * result.row_stride;
    for (std::int64_t j = 0; j < result.columns; j += 32) __builtin_prefetch(row + j, 1);
  }
}

// Columns whose sums are rounded together, while they are in L1: a panel. Where rows of the result
// begin within cache lines, it would store a part of every third of those.
inline std::int64_t rounded_columns(const MatrixView<c10::BFloat16>& result) {
  constexpr std::int64_t kLine = 64 / sizeof(c10::BFloat16);
  return result.columns <= kPanel || result.row_stride % kLine == 0 ? kPanel : 2 * kPanel;
}

// Panel by panel, whose sums stay in registers until they are rounded.
inline void run_rounded(const Part<c10::BFloat16>& whole, const PackedRight<c10::BFloat16>& packed,
                        const Finish<c10::BFloat16>& finish) {
  const MatrixView<const c10::BFloat16> left =
      whole.left.row_major() ? whole.left : kernel_rows(whole.left);
  for (std::int64_t column = 0; column < whole.result.columns; column += kPanel) {
    const std::int64_t columns = std::min(kPanel, whole.result.columns - column);
    const Part<c10::BFloat16> p = whole.cut(0, column, whole.result.rows, columns);
    prefetch(p.result);
    finish.prefetch(p);
    kernels::gemm::multiply_rounded(
        {left.rows, columns, left.columns, stored(left.data), left.row_stride,
         stored(packed.panel(column)), p.added() ? stored(p.addend.data) : nullptr,
         p.addend.row_stride, stored(p.result.data), p.result.row_stride,
         static_cast<float>(p.alpha), static_cast<float>(p.beta)});
  }
}

inline void run_tile(const Part<c10::BFloat16>& whole, const PackedRight<c10::BFloat16>& packed,
                     const Finish<c10::BFloat16>& finish) {
  if (rounds_in_registers() && (!whole.added() || whole.addend.column_stride == 1)) {
    return run_rounded(whole, packed, finish);
  }
  const MatrixView<const c10::BFloat16> left = kernel_rows(whole.left);
  const std::int64_t ld = rounded_columns(whole.result);
  float* to = t_accumulators.get<float>(kTileRows * ld);
  const bool bias = whole.added() && is_bias(whole.addend, whole.beta) && whole.alpha == 1;
  for (std::int64_t column = 0; column < whole.result.columns; column += ld) {
    const std::int64_t columns = std::min(ld, whole.result.columns - column);
    const Part<c10::BFloat16> p = whole.cut(0, column, whole.result.rows, columns);
    const bool add = p.begins_with_addend() && !bias;
    if (add) initialise(p.addend, p.beta, to, ld);
    prefetch(p.result);
    finish.prefetch(p);
    for (std::int64_t j = 0; j < columns; j += kPanel) {
      packed.multiply_panel(left, column + j, to + j, ld, add);
    }
    finish_sums(p, add || bias, to, ld);
    for (std::int64_t i = 0; i < p.result.rows; ++i) {
      kernels::gemm::store_sums(to + i * ld, bias ? stored(p.addend.data) : nullptr, columns,
                                stored(p.result.data + i * p.result.row_stride));
    }
  }
}

// The right operand is packed as a whole: what a few rows sum up to is stored while it is near.
template <class T, class E>
void run_in_tiles(const Part<T, E>& whole, const Finish<T, E>& finish) {
  for (std::int64_t column = 0; column < whole.right.columns; column += kMaxColumns) {
    const std::int64_t columns = std::min(kMaxColumns, whole.right.columns - column);
    const Part<T, E> strip = whole.cut(0, column, whole.result.rows, columns);
    const PackedRight<E> packed(strip.right, strip.left.rows);
    const std::int64_t tile = tile_rows(strip.left, columns);
    for (std::int64_t row = 0; row < strip.left.rows; row += tile) {
      const std::int64_t rows = std::min(tile, strip.left.rows - row);
      const Part<T, E> p = strip.cut(row, 0, rows, columns);
      if constexpr (std::is_same_v<E, c10::BFloat16>) {
        if (p.result.row_major()) {
          run_tile(p, packed, finish);
          finish(p);
          continue;
        }
      }
      float* to = t_accumulators.get<float>(rows * columns);
      const bool begins = p.begins_with_addend();
      if (begins) initialise(p.addend, p.beta, to, columns);
      packed.multiply(p.left, to, columns, begins);
      finish_sums(p, begins, to, columns);
      store(to, p.result);
      finish(p);
    }
  }
}

template <class T, class E>
void run_in_accumulators(const Part<T, E>& p) {
  const bool begins = p.begins_with_addend();
  float* to = t_accumulators.get<float>(p.result.rows * p.result.columns);
  if (begins) initialise(p.addend, p.beta, to, p.result.columns);
  multiply(p.left, p.right, to, p.result.columns, begins);
  finish_sums(p, begins, to, p.result.columns);
  store(to, p.result);
}

// A few rows times a matrix whose columns are dense: inner products.
template <class T>
void run_few_rows(const Part<T>& p) {
  const std::int64_t rows = p.result.rows, columns = p.result.columns;
  constexpr bool kFloats = std::is_same_v<T, float>;
  const bool in_place = kFloats && p.result.row_major() && !p.added();
  float* to = t_accumulators.get<float>(rows * columns);
  if constexpr (kFloats) {
    if (in_place) to = p.result.data;
    if (rows == 1) {
      multiply_vector(p.left.data, p.right.transposed(), to);
    }
  }
  if (!kFloats || rows > 1) {
    multiply_few_rows(p.left, p.right.transposed(), to, in_place ? p.result.row_stride : columns);
  }
  if (in_place) return;
  finish_sums(p, /*has_addend=*/false, to, columns);
  if (!kFloats || !p.result.row_major()) return store(to, p.result);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy_n(to + i * columns, columns,
                reinterpret_cast<float*>(p.result.data + i * p.result.row_stride));
  }
}

template <class T, class E>
void run_part(const Part<T, E>& p, const Finish<T, E>& finish) {
  if constexpr (std::is_same_v<T, E>) {
    if (p.few_rows && !p.continues) {
      run_few_rows(p);
      return finish(p);
    }
  }
  if constexpr (std::is_same_v<T, float>) {
    if (p.result.row_major()) return run_in_place(p, finish);
  }
  if constexpr (!std::is_same_v<E, c10::Half>) {
    if (p.left.columns <= kMaxInner<E>) return run_in_tiles(p, finish);
    run_in_accumulators(p);
    finish(p);
  }
}

}  // namespace loom::ops::detail
