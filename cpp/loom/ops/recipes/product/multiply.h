// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Matrix products on one thread, by oneDNN's block kernel (brgemm), which libtorch exports. It
// multiplies row-major blocks faster than a whole product of MKL or oneDNN runs, but leaves the
// packing to its caller: here operands are packed into panels only where that pays.
// Thread: any; scratch memory is the calling thread's, and is kept for its next product.

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"

#include <c10/util/BFloat16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace loom::ops {

/// Rows x columns over memory that somebody else keeps valid; strides are in elements.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0, row_stride = 0, column_stride = 0;

  [[nodiscard]] MatrixView part(std::int64_t row, std::int64_t column, std::int64_t row_count,
                                std::int64_t column_count) const noexcept {
    return {data + row * row_stride + column * column_stride, row_count, column_count, row_stride,
            column_stride};
  }
  [[nodiscard]] MatrixView transposed() const noexcept {
    return {data, columns, rows, column_stride, row_stride};
  }
  [[nodiscard]] bool row_major() const noexcept {
    return column_stride == 1 && row_stride >= columns;
  }
  [[nodiscard]] bool column_major() const noexcept {
    return row_stride == 1 && column_stride >= rows;
  }
};

/// The columns of a panel: four vectors of AVX-512.
inline constexpr std::int64_t kPanel = 64;

/// What products are part of: PyTorch has a setting for the precision of each in float32.
enum class ProductsOf { kMatrices, kConvolution, kRecurrentLayer };

/// True if multiply() has fast code for T (float, c10::BFloat16; c10::Half as float) on this
/// processor and PyTorch's settings allow it: oneDNN is enabled, and ATen would not compute float32
/// in fewer bits.
/// To be asked when work is submitted, never by a worker: settings change meanwhile.
template <class T>
[[nodiscard]] bool can_multiply(ProductsOf use = ProductsOf::kMatrices);

/// Whether the processor has products of bfloat16, and libtorch a block kernel of them. Thread:
/// any.
[[nodiscard]] bool has_bfloat16_kernel();

/// True of a half type whose operands become float32 before they are multiplied: float16, and
/// bfloat16 where the processor has no products of it. To be asked like can_multiply().
[[nodiscard]] bool multiplies_in_floats(c10::ScalarType dtype);

/// True if multiply() takes the operand: dense rows or columns.
template <class T>
[[nodiscard]] bool can_pack(const MatrixView<const T>& operand) noexcept {
  return operand.row_major() || operand.column_major();
}

/// Inner elements that the block kernel gets of so many: bfloat16 comes in pairs, the last of which
/// has a zero in it if there is an odd number of elements.
template <class T>
[[nodiscard]] constexpr std::int64_t padded_inner(std::int64_t inner) noexcept {
  return std::is_same_v<T, float> ? inner : (inner + 1) / 2 * 2;
}

/// to = left x right, or to += left x right. `to` is row-major with `ld` elements from row to row.
/// Requires: can_multiply<T>(), can_pack() of both operands; `left` may have the zeros of
/// padded_inner() beyond the rows of `right`.
template <class T>
void multiply(const MatrixView<const T>& left, const MatrixView<const T>& right, float* to,
              std::int64_t ld, bool add);

/// A right operand as panels of kPanel columns, panel_step() elements from one to the next. Rows
/// [first_row, first_row + rows) of it are packed, so that several threads can share the work.
/// Requires: for bfloat16 an even first row, and an even number of rows unless they are the last.
template <class T>
void pack_panels(const MatrixView<const T>& right, std::int64_t first_row, std::int64_t rows,
                 T* panels);
/// Some cache lines more than there are elements, so that panels do not meet in the same sets.
template <class T>
[[nodiscard]] constexpr std::int64_t panel_step(std::int64_t inner) noexcept {
  return kPanel * padded_inner<T>(inner) + 256 / static_cast<std::int64_t>(sizeof(T));
}

/// Whether kernels::gemm::multiply_rounded() is the kernel for bfloat16 that is rounded at once:
/// not where the block kernel has a matrix unit (AMX).
[[nodiscard]] bool rounds_in_registers() noexcept;

/// True if the block kernel reads the left operand where it is: dense rows. The last of an odd
/// number of bfloat16 takes it a call of its own, which costs a short row more than a copy does.
template <class T>
[[nodiscard]] bool has_kernel_rows(const MatrixView<const T>& left) noexcept {
  constexpr std::int64_t kLongRow = 256;
  return left.row_major() &&
         (padded_inner<T>(left.columns) == left.columns || left.columns >= kLongRow);
}

/// `left` as the block kernel reads it: where it lies if has_kernel_rows(), else a copy in
/// memory of this thread, until the next product. Requires: can_pack(), at most kTileRows rows.
template <class T>
[[nodiscard]] MatrixView<const T> kernel_rows(const MatrixView<const T>& left);

/// Inner elements and columns that a PackedRight may have, and rows that suit it.
template <class T>
inline constexpr std::int64_t kMaxInner = 1024 * sizeof(float) / sizeof(T);
inline constexpr std::int64_t kMaxColumns = 256;
inline constexpr std::int64_t kTileRows = 64;

/// Elements from row to row of a copy with rows of so many: an odd number of cache lines, so that
/// rows do not all begin in the same sets of the caches.
template <class T>
[[nodiscard]] constexpr std::int64_t row_step(std::int64_t columns) noexcept {
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(T));
  return (ceil_div(columns, line) | 1) * line;
}

/// True if a right operand is used where it lies, by so many rows in all: its rows are close enough
/// to share pages, or there are too few rows to make up for packing it.
template <class T>
[[nodiscard]] bool is_used_in_place(const MatrixView<const T>& right,
                                    std::int64_t left_rows) noexcept {
  constexpr std::int64_t kStride = 512, kElements = 512 * 512, kFewInner = 64;
  if (!std::is_same_v<T, float> || !right.row_major()) return false;
  const bool near = right.row_stride <= kStride && right.rows * right.row_stride <= kElements;
  return near || right.rows <= kFewInner || left_rows <= kTileRows;
}

/// The right operand of several products in a row. Only the last one made on a thread is valid.
template <class T>
class PackedRight {
 public:
  /// `left_rows`: how many rows it will meet in all. Requires: at most kMaxInner<T> rows and
  /// kMaxColumns columns; as for multiply().
  PackedRight(const MatrixView<const T>& right, std::int64_t left_rows);
  /// As multiply(). Requires: at most kTileRows rows.
  void multiply(const MatrixView<const T>& left, float* to, std::int64_t ld, bool add) const;
  /// The panel with the columns from `column` on. Requires: bfloat16.
  [[nodiscard]] const T* panel(std::int64_t column) const noexcept {
    return data_ + column / kPanel * panel_step_;
  }
  /// The same for the columns of one panel, which begin at `column`. Requires: `left` is one of
  /// kernel_rows().
  void multiply_panel(const MatrixView<const T>& left, std::int64_t column, float* to,
                      std::int64_t ld, bool add) const;

 private:
  void keep_rest(const MatrixView<const T>& right);
  void multiply_kernel_rows(const MatrixView<const T>& rows, float* to, std::int64_t ld,
                            bool add) const;
  void multiply_rest(const MatrixView<const T>& rows, float* to, std::int64_t ld, bool add) const;

  const T* data_;
  std::int64_t columns_, panel_step_, ld_;
  std::int64_t step_ = kPanel;  ///< columns that the block kernel takes at once
  // The last columns, if they are a small part of a vector, as rows: inner products take them.
  MatrixView<const T> rest_;
};

/// to (+)= left x right, both used as they lie. Requires: can_multiply<float>(); row-major, at most
/// kPanel columns, sizes that the caches have room for.
void multiply_rows(const MatrixView<const float>& left, const MatrixView<const float>& right,
                   float* to, std::int64_t ld, bool add);

/// Copies a left operand to rows that the block kernel reads, `ld` elements apart. Requires:
/// can_pack(), at least padded_inner() elements from row to row.
template <class T>
void copy_kernel_rows(const MatrixView<const T>& left, T* to, std::int64_t ld);

/// Elements of a panel of `inner` rows.
[[nodiscard]] constexpr std::int64_t panel_size(std::int64_t inner) noexcept {
  return inner * kPanel;
}

/// Packs a right operand of at most kPanel columns, as padded_inner() rows: what lies beside its
/// columns keeps its values. Requires: can_pack().
template <class T>
void pack_panel(const MatrixView<const T>& from, T* to);

/// to (+)= left x the first `columns` columns of a packed operand with as many rows as `left` has
/// columns. Requires: can_multiply<T>(); `left` is row-major, of sizes that the caches have room
/// for.
template <class T>
void multiply_panel(const MatrixView<const T>& left, const T* panel, std::int64_t columns,
                    float* to, std::int64_t ld, bool add);

/// Lives as long as products of T follow each other on a thread, and releases the core's matrix
/// unit (AMX), however they end: the block kernel may have set it up for bfloat16, and other
/// kernels of this thread set it up in their own way.
template <class T>
struct MatrixUnitScope {
  MatrixUnitScope() noexcept {}
  MatrixUnitScope(const MatrixUnitScope&) = delete;
  MatrixUnitScope& operator=(const MatrixUnitScope&) = delete;
  ~MatrixUnitScope() {}
};
template <>
MatrixUnitScope<c10::BFloat16>::~MatrixUnitScope();

/// to[i] = vector x row i of `matrix` (row-major), for the rows of `matrix`.
template <class T>
void multiply_vector(const T* vector, const MatrixView<const T>& matrix, float* to);

/// to[i * ld + j] = row i of `left` x row j of `matrix`, each of which is read once and where it
/// lies. T: c10::Half, too. Requires: dense rows, with as many columns.
template <class T>
void multiply_few_rows(const MatrixView<const T>& left, const MatrixView<const T>& matrix,
                       float* to, std::int64_t ld);

/// to[v * ld + i] = row v of `vectors` x row i of `matrix`: each row of `matrix` is read once for
/// four vectors. Requires: both are row-major, with as many columns.
void multiply_vectors(const MatrixView<const float>& vectors, const MatrixView<const float>& matrix,
                      float* to, std::int64_t ld);

/// to[j][i] = from[i][j]; `from` has `rows` rows. T is 16 or 32 bits wide.
template <class T>
void transpose(std::int64_t rows, std::int64_t columns, const T* from, std::int64_t from_ld, T* to,
               std::int64_t to_ld);

}  // namespace loom::ops
