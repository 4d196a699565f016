// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/multiply.h"

#include "loom/base/ceil_div.h"
#include "loom/base/simd_level.h"
#include "loom/kernels/copy/rows.h"
#include "loom/kernels/copy/transpose_tile.h"
#include "loom/kernels/gemm/bfloat16.h"
#include "loom/kernels/gemm/rounded_panel.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/block_kernel.h"

#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/Half.h>

#if defined(__x86_64__)
#include <cpuinfo.h>
#include <fbgemm/Utils.h>
#endif

#include <algorithm>
#include <exception>

namespace loom::ops {
namespace {

using c10::BFloat16;

// With so few inner elements a block is mostly stored: long pieces of rows, so that fewer pages are
// written to in turns.
constexpr std::int64_t kStoredInner = 64;
// A vector of columns that is filled to a quarter takes as long as a full one, and longer than
// inner products of so many elements with so many rows.
constexpr std::int64_t kRestOfLanes = 4, kLeastRestInner = 48, kLeastRestRows = 16;

const Scratch t_left, t_right, t_even_columns, t_rest, t_rest_sums;

// brgemm's bfloat16 panels need more of the processor and of libtorch than its float32 ones: tried.
// This is where it is decided that no kernel for bfloat16 runs without its instructions.
bool bfloat16_works() {
  if (!kernels::gemm::multiply_pairs.available()) return false;
  try {
    const BFloat16 left[2] = {1.F, 1.F};
    BFloat16 right[32] = {};
    float to[16];
    at::native::cpublas::brgemm(1, 16, 2, 2, 16, 16, false, left, right, to, true);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Whether ATen makes use of a setting on this processor: the conditions are its own.
bool has_bfloat16_precision() {
#if defined(__x86_64__)
  return cpuinfo_initialize() && ((cpuinfo_has_x86_avx512bw() && cpuinfo_has_x86_avx512vl() &&
                                   cpuinfo_has_x86_avx512dq()) ||
                                  cpuinfo_has_x86_avx_ne_convert());
#else
  return true;
#endif
}
bool has_tf32_precision() {
#if defined(__x86_64__)
  return cpuinfo_initialize() && cpuinfo_has_x86_amx_fp16();
#else
  return false;
#endif
}

at::Float32Op setting_of(ProductsOf use) {
  switch (use) {
    case ProductsOf::kConvolution:
      return at::Float32Op::CONV;
    case ProductsOf::kRecurrentLayer:
      return at::Float32Op::RNN;
    default:
      return at::Float32Op::MATMUL;
  }
}

// Each backend has its precisions. float32MatmulPrecision() throws where they are not alike.
bool computes_in_fewer_bits(const at::Context& context, ProductsOf use) {
  static const bool bfloat16 = has_bfloat16_precision(), tf32 = has_tf32_precision();
  const at::Float32Precision precision =
      context.float32Precision(at::Float32Backend::MKLDNN, setting_of(use));
  return (precision == at::Float32Precision::BF16 && bfloat16) ||
         (precision == at::Float32Precision::TF32 && tf32);
}

// Whether columns are read as pairs where they lie.
bool has_pairs(const MatrixView<const BFloat16>& from) {
  return from.rows % 2 == 0 && from.column_stride % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(from.data) % 4 == 0;
}

void pack_pairs(const MatrixView<const BFloat16>& from, std::uint32_t* to) {
  transpose(from.columns, from.rows / 2, reinterpret_cast<const std::uint32_t*>(from.data),
            from.column_stride / 2, to, kPanel);
}

// Other columns are copied to where they are pairs, some rows at a time that stay in L1.
void pack_uneven(const MatrixView<const BFloat16>& from, std::uint32_t* to) {
  constexpr std::int64_t kRows = 128, kStep = row_step<BFloat16>(kRows);
  BFloat16* const copy = t_even_columns.get<BFloat16>(kPanel * kStep);
  for (std::int64_t k = 0; k < from.rows; k += kRows) {
    const auto rows = from.part(k, 0, std::min(kRows, from.rows - k), from.columns);
    copy_kernel_rows(rows.transposed(), copy, kStep);
    pack_pairs({copy, padded_inner<BFloat16>(rows.rows), rows.columns, 1, kStep},
               to + k / 2 * kPanel);
  }
}

}  // namespace

template <>
bool can_multiply<float>(ProductsOf use) {
  static const bool works = simd_level() >= SimdLevel::kAvx2;
  const at::Context& context = at::globalContext();
  return works && context.userEnabledMkldnn() && !computes_in_fewer_bits(context, use);
}

template <>
bool can_multiply<c10::Half>(ProductsOf) {
  return simd_level() >= SimdLevel::kAvx2 && at::globalContext().userEnabledMkldnn();
}

bool has_bfloat16_kernel() {
  static const bool works = bfloat16_works();
  return works;
}

template <>
bool can_multiply<BFloat16>(ProductsOf) {
  return has_bfloat16_kernel() && at::globalContext().userEnabledMkldnn();
}

bool multiplies_in_floats(c10::ScalarType dtype) {
  const bool half = dtype == c10::ScalarType::Half ||
                    (dtype == c10::ScalarType::BFloat16 && !has_bfloat16_kernel());
  return half && can_multiply<c10::Half>();
}

// LOOM_SIMD does not keep oneDNN from the matrix unit.
bool rounds_in_registers() noexcept {
  static const bool rounds =
      kernels::gemm::multiply_rounded.available() && processor_simd_level() < SimdLevel::kAmx;
  return rounds;
}

template <class T>
void transpose(std::int64_t rows, std::int64_t columns, const T* from, std::int64_t from_ld, T* to,
               std::int64_t to_ld) {
#if defined(__x86_64__)
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;
  fbgemm::transpose_simd(rows, columns, reinterpret_cast<const Bits*>(from), from_ld,
                         reinterpret_cast<Bits*>(to), to_ld);
#else
  kernels::turn_matrix(from, from_ld, rows, columns, to, to_ld);
#endif
}

template void transpose(std::int64_t, std::int64_t, const float*, std::int64_t, float*,
                        std::int64_t);
template void transpose(std::int64_t, std::int64_t, const std::uint32_t*, std::int64_t,
                        std::uint32_t*, std::int64_t);
template void transpose(std::int64_t, std::int64_t, const std::uint16_t*, std::int64_t,
                        std::uint16_t*, std::int64_t);

template <>
void pack_panel(const MatrixView<const float>& from, float* to) {
  if (from.column_stride != 1) {
    transpose(from.columns, from.rows, from.data, from.column_stride, to, kPanel);
    return;
  }
  kernels::copy_rows(from.rows, from.columns, from.columns, from.data, from.row_stride, to, kPanel);
}

template <>
void pack_panel(const MatrixView<const BFloat16>& from, BFloat16* to) {
  auto* pairs = reinterpret_cast<std::uint32_t*>(to);
  if (from.column_stride != 1) {
    has_pairs(from) ? pack_pairs(from, pairs) : pack_uneven(from, pairs);
    return;
  }
  static constexpr simd::BFloat16 kZeros[kPanel] = {};
  const simd::BFloat16* source = stored(from.data);
  for (std::int64_t k = 0; k < from.rows; k += 2) {
    const simd::BFloat16* row = source + k * from.row_stride;
    const simd::BFloat16* next = k + 1 < from.rows ? row + from.row_stride : kZeros;
    kernels::gemm::interleave_pairs(row, next, from.columns, pairs + k / 2 * kPanel);
  }
}

template <class T>
void pack_panels(const MatrixView<const T>& right, std::int64_t first_row, std::int64_t rows,
                 T* panels) {
  // Rows that are dense are read as a whole.
  const std::int64_t step = right.row_major() ? 2 : rows;
  for (std::int64_t k = first_row; k < first_row + rows; k += step) {
    const std::int64_t depth = std::min(step, first_row + rows - k);
    for (std::int64_t j = 0; j < right.columns; j += kPanel) {
      const std::int64_t width = std::min(kPanel, right.columns - j);
      pack_panel(right.part(k, j, depth, width),
                 panels + j / kPanel * panel_step<T>(right.rows) + k * kPanel);
    }
  }
}

template void pack_panels(const MatrixView<const float>&, std::int64_t, std::int64_t, float*);
template void pack_panels(const MatrixView<const BFloat16>&, std::int64_t, std::int64_t, BFloat16*);

template <class T>
void copy_kernel_rows(const MatrixView<const T>& left, T* to, std::int64_t ld) {
  const std::int64_t padded = padded_inner<T>(left.columns);
  if (left.row_major()) {
    return kernels::copy_rows(left.rows, left.columns, padded, left.data, left.row_stride, to, ld);
  }
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;
  transpose(left.columns, left.rows, reinterpret_cast<const Bits*>(left.data), left.column_stride,
            reinterpret_cast<Bits*>(to), ld);
  kernels::fill_rows(left.rows, padded - left.columns, T(0), to + left.columns, ld);
}

template void copy_kernel_rows(const MatrixView<const float>&, float*, std::int64_t);
template void copy_kernel_rows(const MatrixView<const BFloat16>&, BFloat16*, std::int64_t);

template <class T>
MatrixView<const T> kernel_rows(const MatrixView<const T>& left) {
  if (has_kernel_rows(left)) return left;
  const std::int64_t ld = row_step<T>(left.columns);
  T* copy = t_left.get<T>(kTileRows * ld);
  copy_kernel_rows(left, copy, ld);
  return {copy, left.rows, padded_inner<T>(left.columns), ld, 1};
}

template MatrixView<const float> kernel_rows(const MatrixView<const float>&);
template MatrixView<const BFloat16> kernel_rows(const MatrixView<const BFloat16>&);

template <class T>
PackedRight<T>::PackedRight(const MatrixView<const T>& right, std::int64_t left_rows)
    : data_(right.data), columns_(right.columns), panel_step_(kPanel), ld_(right.row_stride) {
  if (is_used_in_place(right, left_rows)) {
    if (right.rows <= kStoredInner) step_ = kMaxColumns;
    if (left_rows >= kLeastRestRows && right.rows >= kLeastRestInner) keep_rest(right);
    return;
  }
  const std::int64_t panels = ceil_div(right.columns, kPanel);
  panel_step_ = panel_step<T>(right.rows);
  T* packed = t_right.get<T>(panels * panel_step_);
  pack_panels(right, 0, right.rows, packed);
  data_ = packed;
  ld_ = kPanel;
}

template <class T>
void PackedRight<T>::keep_rest(const MatrixView<const T>& right) {
  const std::int64_t lanes = simd_level() >= SimdLevel::kAvx512 ? 16 : 8;
  const std::int64_t rest = right.columns % lanes;
  if (rest == 0 || rest * kRestOfLanes > lanes) return;
  columns_ -= rest;
  const std::int64_t ld = row_step<T>(right.rows);
  T* const rows = t_rest.get<T>(rest * ld);
  copy_kernel_rows(right.part(0, columns_, right.rows, rest).transposed(), rows, ld);
  rest_ = {rows, rest, right.rows, ld, 1};
}

template <class T>
void PackedRight<T>::multiply_rest(const MatrixView<const T>& rows, float* to, std::int64_t ld,
                                   bool add) const {
  float* const sums = t_rest_sums.get<float>(rest_.rows * rows.rows);
  if (rest_.rows == 1) {
    multiply_vector(rest_.data, rows, sums);
  } else {
    multiply_few_rows(rest_, rows, sums, rows.rows);
  }
  to += columns_;
  if (!add) kernels::fill_rows(rows.rows, rest_.rows, 0.F, to, ld);
  kernels::add_transposed(rows.rows, rest_.rows, sums, rows.rows, to, ld);
}

template <class T>
void PackedRight<T>::multiply_panel(const MatrixView<const T>& left, std::int64_t column, float* to,
                                    std::int64_t ld, bool add) const {
  multiply_block(
      {left.rows, std::min(kPanel, columns_ - column), left.columns, left.row_stride, ld_, ld, add},
      left.data, data_ + column / kPanel * panel_step_, to);
}

template <class T>
void PackedRight<T>::multiply(const MatrixView<const T>& left, float* to, std::int64_t ld,
                              bool add) const {
  // Not a copy of `left`: to read what was written just before, but in other pieces, waits for all
  // stores of results before it.
  if (!has_kernel_rows(left)) return multiply_kernel_rows(kernel_rows(left), to, ld, add);
  multiply_kernel_rows(left, to, ld, add);
}

template <class T>
void PackedRight<T>::multiply_kernel_rows(const MatrixView<const T>& rows, float* to,
                                          std::int64_t ld, bool add) const {
  for (std::int64_t j = 0; j < columns_; j += step_) {
    multiply_block(
        {rows.rows, std::min(step_, columns_ - j), rows.columns, rows.row_stride, ld_, ld, add},
        rows.data, data_ + j / kPanel * panel_step_, to + j);
  }
  if (rest_.rows > 0) multiply_rest(rows, to, ld, add);
}

template class PackedRight<float>;
template class PackedRight<BFloat16>;

template <class T>
void multiply(const MatrixView<const T>& left, const MatrixView<const T>& right, float* to,
              std::int64_t ld, bool add) {
  const std::int64_t inner = right.rows;
  // Parts of about the same length, of whole vectors.
  const std::int64_t chunks = (inner + kMaxInner<T> - 1) / kMaxInner<T>;
  const std::int64_t chunk = round_up(ceil_div(inner, chunks), 32);
  for (std::int64_t column = 0; column < right.columns; column += kMaxColumns) {
    const std::int64_t columns = std::min(kMaxColumns, right.columns - column);
    for (std::int64_t k = 0; k < inner; k += chunk) {
      const std::int64_t depth = std::min(chunk, inner - k);
      const PackedRight<T> packed(right.part(k, column, depth, columns), left.rows);
      for (std::int64_t row = 0; row < left.rows; row += kTileRows) {
        const std::int64_t padded = k + depth < inner ? depth : left.columns - k;
        packed.multiply(left.part(row, k, std::min(kTileRows, left.rows - row), padded),
                        to + row * ld + column, ld, add || k > 0);
      }
    }
  }
}

template void multiply(const MatrixView<const float>&, const MatrixView<const float>&, float*,
                       std::int64_t, bool);
template void multiply(const MatrixView<const BFloat16>&, const MatrixView<const BFloat16>&, float*,
                       std::int64_t, bool);

void multiply_rows(const MatrixView<const float>& left, const MatrixView<const float>& right,
                   float* to, std::int64_t ld, bool add) {
  multiply_block(
      {left.rows, right.columns, left.columns, left.row_stride, right.row_stride, ld, add},
      left.data, right.data, to);
}

template <class T>
void multiply_panel(const MatrixView<const T>& left, const T* panel, std::int64_t columns,
                    float* to, std::int64_t ld, bool add) {
  multiply_block({left.rows, columns, left.columns, left.row_stride, kPanel, ld, add}, left.data,
                 panel, to);
}

template void multiply_panel(const MatrixView<const float>&, const float*, std::int64_t, float*,
                             std::int64_t, bool);
template void multiply_panel(const MatrixView<const BFloat16>&, const BFloat16*, std::int64_t,
                             float*, std::int64_t, bool);

template <>
MatrixUnitScope<BFloat16>::~MatrixUnitScope() {
  at::native::cpublas::brgemm_release();
}

}  // namespace loom::ops
