// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/write_rows.h"

#include "loom/kernels/index/listed_sums.h"
#include "loom/kernels/index/rows.h"
#include "loom/ops/launch/elements.h"

#include <optional>
#include <vector>

namespace loom::ops {
namespace {

using kernels::index::quotient;
using kernels::index::Rows;

template <class T>
Rows<T> rows_of(const TensorRef& result, const TensorRef& source, const Lines& lines,
                const Places& places, bool cuts_items) {
  return {reinterpret_cast<T*>(result.data()), reinterpret_cast<const T*>(source.data()), lines,
          places, cuts_items};
}

template <class T>
void combine_rows(Grid& grid, const Parts& parts, const Rows<T>& rows, const T* self,
                  const RowWrite& write) {
  std::vector<std::int64_t> named;
  if (!write.counts_self || write.how == Combine::kMean) {
    named = kernels::index::times_named(rows.places, rows.lines.items);
  }
  const auto times = [&](std::int64_t item) { return named[static_cast<std::size_t>(item)]; };
  const auto is_named = [&](std::int64_t item) { return times(item) > 0; };
  const T first = kernels::index::neutral<T>(write.how), factor = write.factor.to<T>();
  const std::int64_t own = write.counts_self ? 1 : 0;
  const auto run = [&](auto combination) {
    grid.run_by_any(parts.count(), [&](std::int64_t index) {
      const Part part = parts.at(index);
      copy_part(reinterpret_cast<std::byte*>(rows.result), reinterpret_cast<const std::byte*>(self),
                rows.lines, part, sizeof(T));
      if (!write.counts_self) {
        rows.change(part, is_named, [first](T& element, std::int64_t) { element = first; });
      }
      rows.combine(part, combination);
      if (write.how != Combine::kMean) return;
      rows.change(part, is_named, [&](T& element, std::int64_t item) {
        element = quotient(element, times(item) + own);
      });
    });
  };
  if (factor != T{1}) {
    return run([factor](T a, T b) { return static_cast<T>(a + factor * b); });
  }
  kernels::index::with_combination<T>(write.how, run);
}

// Sums of half types along the first dimension, by an index of int64 and without a factor, are
// rounded once, as ATen's are; it rounds others each time. Rows are added as wholes, which wants
// some elements.
bool adds_half_rows(const RowWrite& write, const at::Tensor& self, const at::Tensor& index) {
  constexpr std::int64_t kShortestRow = 16;
  return c10::isReducedFloatingType(self.scalar_type()) && write.how == Combine::kAdd &&
         write.counts_self && !write.wraps && write.dim == 0 && write.factor.equal(1) &&
         index.scalar_type() == c10::kLong && self.stride(0) >= kShortestRow;
}

template <class T>
void add_half_rows(Grid& grid, const Parts& parts, const Rows<T>& rows, const T* self) {
  const Lines& lines = rows.lines;
  const kernels::index::RowLists lists =
      kernels::index::lists_of(rows.places, lines.count, lines.items, /*padding_index=*/-1);
  grid.run_by_any(parts.count(), [&](std::int64_t index) {
    const Part part = parts.at(index);
    kernels::index::ListedSums<T> sums(lists, {rows.source, lines.inner});
    copy_part(reinterpret_cast<std::byte*>(rows.result), reinterpret_cast<const std::byte*>(self),
              lines, part, sizeof(T));
    for (std::int64_t item = part.item_begin; item < part.item_end; ++item) {
      sums.add(item, part.column_begin, part.column_end,
               rows.result + item * lines.inner + part.column_begin);
    }
  });
}

}  // namespace

bool can_write_rows(const RowWrite& write, const at::Tensor& result, const at::Tensor& self,
                    const at::Tensor& index, const at::Tensor& source) {
  const bool dense = result.is_contiguous() && self.is_contiguous() && source.is_contiguous() &&
                     index.is_contiguous() && !self.is_conj() && !self.is_neg() &&
                     !source.is_conj() && !source.is_neg() && !result.is_conj() && !result.is_neg();
  if (!dense || self.dim() == 0 || source.dim() != self.dim() || index.dim() != 1 ||
      result.numel() == 0 || source.numel() == 0 ||
      (index.scalar_type() != c10::kLong && index.scalar_type() != c10::kInt) ||
      self.scalar_type() != source.scalar_type() || self.scalar_type() != result.scalar_type() ||
      !(can_combine(write.how, self.scalar_type()) || adds_half_rows(write, self, index))) {
    return false;
  }
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (source.size(d) != (d == write.dim ? index.numel() : self.size(d))) return false;
  }
  // As ATen, which then says why.
  return !write.factor.isComplex() &&
         (c10::isFloatingType(self.scalar_type()) || write.factor.isIntegral(false));
}

bool write_rows(Grid& grid, const TensorRef& result, const TensorRef& self, const TensorRef& index,
                const TensorRef& source, const RowWrite& write) {
  const Lines lines = lines_of(self.alias(), write.dim, index.numel());
  const auto places = places_of(index, lines.items, write.wraps);
  if (!places) return false;
  write_rows(grid, result, self, *places, source, lines, write);
  return true;
}

void write_rows(Grid& grid, const TensorRef& result, const TensorRef& self, const Places& places,
                const TensorRef& source, const Lines& lines, const RowWrite& write) {
  const bool in_place = result.data() == self.data();
  const Parts parts(lines, (in_place ? 0 : self.numel()) + source.numel(), /*cuts_items=*/true);
  if (write.how == Combine::kCopy) {
    kernels::with_bytes(result.itemsize(), [&]<class T>(T) {
      const auto all = rows_of<T>(result, source, lines, places, parts.cuts_items());
      grid.run_by_any(parts.count(), [&](std::int64_t i) {
        const Part part = parts.at(i);
        copy_part(result.data(), self.data(), lines, part, sizeof(T));
        all.combine(part, [](T, T with) { return with; });
      });
    });
  } else if (c10::isReducedFloatingType(result.dtype())) {
    with_floats(result.dtype(), [&]<class E>(E) {
      using T = Stored<E>;
      add_half_rows<T>(grid, parts, rows_of<T>(result, source, lines, places, parts.cuts_items()),
                       reinterpret_cast<const T*>(self.data()));
    });
  } else {
    with_number(result.dtype(), [&]<class T>(T) {
      combine_rows<T>(grid, parts, rows_of<T>(result, source, lines, places, parts.cuts_items()),
                      reinterpret_cast<const T*>(self.data()), write);
    });
  }
}

}  // namespace loom::ops
