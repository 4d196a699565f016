// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Recipes of reductions over the last dimensions, which are parts of fused programs: what is
// reduced is computed on the way, and what needs the result goes on with it. Whether a reduction is
// done so depends on shapes and dtypes only. Thread: any.

#include "loom/ops/aten/policy/fused.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <c10/util/OptionalArrayRef.h>

namespace loom::ops::recipe {

/// How many of the last dimensions of `self` are reduced, if those are all that are and a program
/// can do it well: rows stay in a core's cache, and there are several, or a short one. Else 0.
inline int reduced_last_dims(const Tensor& self, at::OptionalIntArrayRef dims) {
  constexpr std::int64_t kLongestRow = 65536, kLongestOnlyRow = 8192;
  const std::int64_t dim = self.dim();
  if (dim == 0 || dim > fusion_max_dims() || !self.is_contiguous()) return 0;
  std::int64_t reduced = dim;
  if (dims && !dims->empty()) {
    const auto mask = at::dim_list_to_bitset(*dims, static_cast<std::size_t>(dim));
    reduced = 0;
    while (reduced < dim && mask[static_cast<std::size_t>(dim - 1 - reduced)]) ++reduced;
    if (mask.count() != static_cast<std::size_t>(reduced)) return 0;
  }
  std::int64_t columns = 1;
  for (std::int64_t d = dim - reduced; d < dim; ++d) columns *= self.size(d);
  if (columns < 2 || columns > kLongestRow) return 0;
  const std::int64_t rows = self.numel() / columns;
  return rows > 1 || columns <= kLongestOnlyRow ? static_cast<int>(reduced) : 0;
}

/// The columns of many rows so short that to combine their columns takes less than to reduce each
/// row (a third at 2 columns, half at 6, as much at 8; Zen 4 with AVX-512 and with AVX2). Else 0.
inline std::int64_t few_columns(const Tensor& self, int reduced) {
  constexpr std::int64_t kFewColumns = 6, kManyRows = 1024;
  std::int64_t columns = 1;
  for (std::int64_t d = self.dim() - reduced; d < self.dim(); ++d) columns *= self.size(d);
  return columns <= kFewColumns && self.numel() >= columns * kManyRows ? columns : 0;
}

/// Combines the columns of rows, which lie one behind the other, to values of the shape of `to`.
inline Node fold_columns(FusedOperator& f, Op op, const Tensor& to, const Tensor& self,
                         std::int64_t columns) {
  Node all = f.load_column(self, to.sizes(), columns, 0);
  for (std::int64_t index = 1; index < columns; ++index) {
    all = f.apply(op, all, f.load_column(self, to.sizes(), columns, index));
  }
  return all;
}

template <bool kDivides = false>
struct RowSum {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self,
                   at::OptionalIntArrayRef dims, bool, std::optional<c10::ScalarType>) {
    const int reduced = reduced_last_dims(self, dims);
    if (reduced == 0 || f.type() == Type::kMask || f.type() == Type::kInt32) return f.give_up();
    const std::int64_t columns = few_columns(self, reduced);
    if (columns == 0) f.reduce_over_last(reduced);
    Node sum = columns != 0 ? fold_columns(f, Op::kAdd, to, self, columns)
                            : f.apply(Op::kSum, f.load(self));
    if (kDivides) {
      sum = f.div(
          sum, f.number(static_cast<double>(self.numel() / std::max<std::int64_t>(to.numel(), 1))));
    }
    f.store(sum, to);
  }
};

template <Op kOp, Op kOfTwo>
struct RowExtremum {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, at::IntArrayRef dims,
                   bool) {
    const int reduced = reduced_last_dims(self, dims);
    if (reduced == 0 || f.mask() || to.scalar_type() != self.scalar_type()) return f.give_up();
    if (const std::int64_t columns = few_columns(self, reduced)) {
      return f.store(fold_columns(f, kOfTwo, to, self, columns), to);
    }
    f.reduce_over_last(reduced);
    f.store(f.apply(kOp, f.load(self)), to);
  }
};

}  // namespace loom::ops::recipe
