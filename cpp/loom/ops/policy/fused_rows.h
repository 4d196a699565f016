// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Recipes of reductions over the last dimensions, which are parts of fused programs: what is
// reduced is computed on the way, and what needs the result goes on with it. Whether a reduction is
// done so depends on shapes and dtypes only. Thread: any.

#include "loom/ops/policy/fused.h"

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

template <Op kOp, bool kDivides = false>
struct RowSum {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self,
                   at::OptionalIntArrayRef dims, bool, std::optional<c10::ScalarType>) {
    const int reduced = reduced_last_dims(self, dims);
    if (reduced == 0 || f.type() == Type::kMask || f.type() == Type::kInt32) return f.give_up();
    f.reduce_over_last(reduced);
    Node sum = f.apply(kOp, f.load(self));
    if (kDivides) {
      sum = f.div(
          sum, f.number(static_cast<double>(self.numel() / std::max<std::int64_t>(to.numel(), 1))));
    }
    f.store(sum, to);
  }
};

template <Op kOp>
struct RowExtremum {
  static constexpr bool kCommonIsOutput = true;
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, at::IntArrayRef dims,
                   bool) {
    const int reduced = reduced_last_dims(self, dims);
    if (reduced == 0 || f.mask() || to.scalar_type() != self.scalar_type()) return f.give_up();
    f.reduce_over_last(reduced);
    f.store(f.apply(kOp, f.load(self)), to);
  }
};

}  // namespace loom::ops::recipe
