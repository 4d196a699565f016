// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The operands of flash attention as matrices. Thread: any.

#include "loom/base/ceil_div.h"
#include "loom/kernels/attention/tiles.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/tensor_ref.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <cstring>

namespace loom::ops {

using kernels::attention::kPadding;
using kernels::attention::kTile;

/// [batch, heads, positions, elements]: positions x elements for each item of batch and heads.
template <class T>
class Heads {
 public:
  explicit Heads(const TensorRef& tensor)
      : data_(reinterpret_cast<T*>(tensor.data())),
        heads_(tensor.sizes()[1]),
        items_(tensor.sizes()[0] * heads_),
        positions_(tensor.sizes()[2]),
        elements_(tensor.sizes()[3]),
        batch_stride_(tensor.strides()[0]),
        head_stride_(tensor.strides()[1]),
        position_stride_(positions_ == 1 ? elements_ : tensor.strides()[2]) {}

  [[nodiscard]] std::int64_t items() const noexcept { return items_; }
  [[nodiscard]] std::int64_t positions() const noexcept { return positions_; }
  [[nodiscard]] std::int64_t elements() const noexcept { return elements_; }
  [[nodiscard]] MatrixView<T> item(std::int64_t index) const noexcept {
    return {data_ + index / heads_ * batch_stride_ + index % heads_ * head_stride_, positions_,
            elements_, position_stride_, 1};
  }

 private:
  T* data_;
  std::int64_t heads_, items_, positions_, elements_;
  std::int64_t batch_stride_, head_stride_, position_stride_;
};

/// What is added to the scores: queries x keys for each item, or nothing.
template <class T>
class Mask {
 public:
  /// `mask` has two or four dimensions and dense keys, or is undefined.
  Mask(const TensorRef& mask, std::int64_t heads) : heads_(heads) {
    if (!mask.defined()) return;
    data_ = reinterpret_cast<const T*>(mask.data());
    const auto stride = [&](std::int64_t from_last) -> std::int64_t {
      const std::int64_t dim = mask.dim() - from_last;
      if (dim < 0 || mask.sizes()[static_cast<std::size_t>(dim)] == 1) return 0;
      return mask.strides()[static_cast<std::size_t>(dim)];
    };
    batch_stride_ = stride(4);
    head_stride_ = stride(3);
    query_stride_ = stride(2);
  }

  [[nodiscard]] std::int64_t query_stride() const noexcept { return query_stride_; }
  /// What is added to the score of a query and a key of an item; null if nothing is.
  [[nodiscard]] const T* at(std::int64_t item, std::int64_t query,
                            std::int64_t key) const noexcept {
    if (data_ == nullptr) return nullptr;
    return data_ + item / heads_ * batch_stride_ + item % heads_ * head_stride_ +
           query * query_stride_ + key;
  }

 private:
  const T* data_ = nullptr;
  std::int64_t heads_, batch_stride_ = 0, head_stride_ = 0, query_stride_ = 0;
};

/// The operands of both ways forward.
template <class T>
struct Attention {
  Attention(const TensorRef& to, const TensorRef& log_sum, const TensorRef& queries,
            const TensorRef& keys, const TensorRef& values, const TensorRef& added, bool is_causal,
            double factor)
      : output(to),
        query(queries),
        key(keys),
        value(values),
        mask(added, queries.sizes()[1]),
        log_sums(elements<float>(log_sum)),
        causal(is_causal),
        scale(static_cast<float>(factor)) {}

  Heads<T> output;
  Heads<const T> query, key, value;
  Mask<T> mask;
  float* log_sums;
  bool causal;
  float scale;

  /// Keys that queries before `end` see.
  [[nodiscard]] std::int64_t seen(std::int64_t end) const noexcept {
    return causal ? std::min(end, key.positions()) : key.positions();
  }
};

/// Rows [first, first + kTile) of a row-major matrix, or as many as there are, and zeros after
/// them. Room: kTile rows.
template <class T>
[[nodiscard]] MatrixView<const T> tile_of(const MatrixView<const T>& from, std::int64_t first,
                                          T* room) {
  const std::int64_t rows = std::min(kTile, from.rows - first);
  if (rows == kTile) return from.part(first, 0, kTile, from.columns);
  const auto row_bytes = static_cast<std::size_t>(from.columns) * sizeof(T);
  auto* const bytes = reinterpret_cast<std::byte*>(room);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(bytes + static_cast<std::size_t>(row) * row_bytes,
                from.data + (first + row) * from.row_stride, row_bytes);
  }
  const std::int64_t padded = round_up(rows, kPadding);
  std::memset(bytes + static_cast<std::size_t>(rows) * row_bytes, 0,
              static_cast<std::size_t>(padded - rows) * row_bytes);
  return {room, padded, from.columns, from.columns, 1};
}

/// Packs a tile as a right operand: a panel for every kPanel columns, panels `step`
/// elements apart.
template <class T>
void pack_tile(const MatrixView<const T>& tile, T* to, std::int64_t step) {
  for (std::int64_t j = 0; j < tile.columns; j += kPanel, to += step) {
    pack_panel(tile.part(0, j, tile.rows, std::min(kPanel, tile.columns - j)), to);
  }
}

/// to (+)= left x what pack_tile() or a row of such tiles has packed.
template <class T>
void multiply_tiles(const MatrixView<const T>& left, const T* panels, std::int64_t step,
                    std::int64_t columns, float* to, std::int64_t ld, bool add) {
  for (std::int64_t j = 0; j < columns; j += kPanel, panels += step) {
    multiply_panel(left, panels, std::min(kPanel, columns - j), to + j, ld, add);
  }
}

static_assert(kTile == kPanel, "a tile of scores is a panel");

/// How many items make a block of at least some 20 us.
[[nodiscard]] inline std::int64_t items_of_block(double multiply_adds_of_item,
                                                 std::int64_t items) noexcept {
  constexpr double kLeastBlock = 1e6;
  const double least = kLeastBlock / std::max(multiply_adds_of_item, 1.0);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(least), 1,
                                  std::max<std::int64_t>(items, 1));
}

}  // namespace loom::ops
