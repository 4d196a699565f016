// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/multiply.h"

#include "loom/ops/random/isa_clones.h"

#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>

#if defined(__x86_64__)
#include <fbgemm/Utils.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <new>

namespace loom::ops {
namespace {

using c10::BFloat16;

// The right operand is used where it is while its rows are close enough to share pages...
constexpr std::int64_t kDirectInner = 512;
constexpr std::int64_t kDirectStride = 512;
// ... or if there are too few rows to make up for packing it.
constexpr std::int64_t kDirectRows = kTileRows;

constexpr std::size_t kAlignment = 64;

thread_local Scratch t_left, t_right;

// Two rows of bfloat16 as one of pairs, which is how dot product instructions want them.
LOOM_ISA_CLONES void interleave(const std::uint16_t* first, const std::uint16_t* second,
                                std::int64_t count, std::uint32_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::uint32_t>(first[i]) | static_cast<std::uint32_t>(second[i]) << 16;
  }
}

// Rows of the left operand with their elements side by side.
template <class T>
std::pair<const T*, std::int64_t> prepare_left(const MatrixView<const T>& left) {
  if (left.row_major()) return {left.data, left.row_stride};
  // A cache line more, so that the rows do not all begin in the same set of the cache.
  const std::int64_t ld = left.columns + 64 / static_cast<std::int64_t>(sizeof(T));
  T* packed = t_left.get<T>(kTileRows * ld);
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;
  transpose(left.columns, left.rows, reinterpret_cast<const Bits*>(left.data), left.column_stride,
            reinterpret_cast<Bits*>(packed), ld);
  return {packed, ld};
}

// brgemm's bfloat16 panels need more of the processor and of libtorch than its float32 ones: tried.
bool bfloat16_works() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  try {
    const BFloat16 left[2] = {1.F, 1.F};
    BFloat16 right[32] = {};
    float to[16];
    at::native::cpublas::brgemm(1, 16, 2, 2, 16, 16, false, left, right, to, true);
    return true;
  } catch (const std::exception&) {
    return false;
  }
#else
  return false;
#endif
}

bool float32_works() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

}  // namespace

void Scratch::Free::operator()(void* memory) const noexcept {
  ::operator delete(memory, std::align_val_t{kAlignment});
}

void* Scratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(::operator new(bytes, std::align_val_t{kAlignment}));
    bytes_ = bytes;
  }
  return memory_.get();
}

template <>
bool can_multiply<float>() {
  static const bool works = float32_works();
  const at::Context& context = at::globalContext();
  return works && context.userEnabledMkldnn() &&
         context.float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
}

template <>
bool can_multiply<BFloat16>() {
  static const bool works = bfloat16_works();
  return works && at::globalContext().userEnabledMkldnn();
}

template <class T>
void transpose(std::int64_t rows, std::int64_t columns, const T* from, std::int64_t from_ld, T* to,
               std::int64_t to_ld) {
#if defined(__x86_64__)
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;
  fbgemm::transpose_simd(rows, columns, reinterpret_cast<const Bits*>(from), from_ld,
                         reinterpret_cast<Bits*>(to), to_ld);
#else
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) to[j * to_ld + i] = from[i * from_ld + j];
  }
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
  for (std::int64_t k = 0; k < from.rows; ++k) {
    std::memcpy(to + k * kPanel, from.data + k * from.row_stride,
                static_cast<std::size_t>(from.columns) * sizeof(float));
  }
}

template <>
void pack_panel(const MatrixView<const BFloat16>& from, BFloat16* to) {
  auto* pairs = reinterpret_cast<std::uint32_t*>(to);
  if (from.column_stride != 1) {
    transpose(from.columns, from.rows / 2, reinterpret_cast<const std::uint32_t*>(from.data),
              from.column_stride / 2, pairs, kPanel);
    return;
  }
  const auto* source = reinterpret_cast<const std::uint16_t*>(from.data);
  for (std::int64_t k = 0; k < from.rows; k += 2) {
    const std::uint16_t* row = source + k * from.row_stride;
    interleave(row, row + from.row_stride, from.columns, pairs + k / 2 * kPanel);
  }
}

template <class T>
PackedRight<T>::PackedRight(const MatrixView<const T>& right, std::int64_t left_rows)
    : data_(right.data), columns_(right.columns), panel_step_(kPanel), ld_(right.row_stride) {
  if constexpr (std::is_same_v<T, float>) {
    const bool near = right.row_stride <= kDirectStride && right.rows <= kDirectInner;
    if (right.row_major() && (near || left_rows <= kDirectRows)) return;
  }
  const std::int64_t panels = (right.columns + kPanel - 1) / kPanel;
  T* packed = t_right.get<T>(panels * kPanel * right.rows);
  for (std::int64_t j = 0; j < right.columns; j += kPanel) {
    const std::int64_t width = std::min(kPanel, right.columns - j);
    pack_panel(right.part(0, j, right.rows, width), packed + j * right.rows);
  }
  data_ = packed;
  panel_step_ = kPanel * right.rows;
  ld_ = kPanel;
}

template <class T>
void PackedRight<T>::multiply(const MatrixView<const T>& left, float* to, std::int64_t ld,
                              bool add) const {
  const auto [rows, rows_ld] = prepare_left(left);
  for (std::int64_t j = 0; j < columns_; j += kPanel) {
    at::native::cpublas::brgemm(left.rows, std::min(kPanel, columns_ - j), left.columns, rows_ld,
                                ld_, ld, add, rows, data_ + j / kPanel * panel_step_, to + j,
                                !std::is_same_v<T, float>);
  }
}

template class PackedRight<float>;
template class PackedRight<BFloat16>;

template <class T>
void multiply(const MatrixView<const T>& left, const MatrixView<const T>& right, float* to,
              std::int64_t ld, bool add) {
  const std::int64_t inner = left.columns;
  // Parts of about the same length, of whole vectors.
  const std::int64_t chunks = (inner + kMaxInner<T> - 1) / kMaxInner<T>;
  const std::int64_t chunk = ((inner + chunks - 1) / chunks + 31) / 32 * 32;
  for (std::int64_t column = 0; column < right.columns; column += kMaxColumns) {
    const std::int64_t columns = std::min(kMaxColumns, right.columns - column);
    for (std::int64_t k = 0; k < inner; k += chunk) {
      const std::int64_t depth = std::min(chunk, inner - k);
      const PackedRight<T> packed(right.part(k, column, depth, columns), left.rows);
      for (std::int64_t row = 0; row < left.rows; row += kTileRows) {
        packed.multiply(left.part(row, k, std::min(kTileRows, left.rows - row), depth),
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
  at::native::cpublas::brgemm(left.rows, right.columns, left.columns, left.row_stride,
                              right.row_stride, ld, add, left.data, right.data, to, false);
}

template <class T>
void multiply_panel(const MatrixView<const T>& left, const T* panel, std::int64_t columns,
                    float* to, std::int64_t ld, bool add) {
  at::native::cpublas::brgemm(left.rows, columns, left.columns, left.row_stride, kPanel, ld, add,
                              left.data, panel, to, !std::is_same_v<T, float>);
}

template void multiply_panel(const MatrixView<const float>&, const float*, std::int64_t, float*,
                             std::int64_t, bool);
template void multiply_panel(const MatrixView<const BFloat16>&, const BFloat16*, std::int64_t,
                             float*, std::int64_t, bool);

void release_matrix_unit() { at::native::cpublas::brgemm_release(); }

LOOM_ISA_CLONES void round_to_bfloat16(const float* from, std::int64_t count, BFloat16* to) {
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t even = (value + 0x7FFF + (value >> 16 & 1)) >> 16;
    const bool nan = (value & 0x7FFF'FFFF) > 0x7F80'0000;
    bits[i] = static_cast<std::uint16_t>(nan ? 0x7FC0 : even);
  }
}

}  // namespace loom::ops
