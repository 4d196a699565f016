// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/bags.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/index/bags.h"
#include "loom/ops/launch/elements.h"

#include <algorithm>
#include <atomic>
#include <fbgemm/FbgemmEmbedding.h>
#include <type_traits>

namespace loom::ops {
namespace {

/// Some bags, and some columns of their rows.
struct Range {
  std::int64_t begin, end, column, columns;
};

/// How bags are cut.
class BagBlocks {
 public:
  BagBlocks(std::int64_t bags, std::int64_t places, std::int64_t columns, double cost) noexcept
      : bags_(bags), columns_(columns) {
    const double bag = 30 + cost * static_cast<double>(places) / static_cast<double>(bags) *
                                static_cast<double>(columns);
    length_ = block_length(bags, bag);
    // Few bags: columns in whole cache lines.
    constexpr std::int64_t kEnough = 4, kLine = 64;
    width_ = columns;
    if (ceil_div(bags, length_) < kEnough) {
      const std::int64_t lines = ceil_div(columns, kLine);
      width_ = kLine *
               block_length(lines, bag * static_cast<double>(length_) / static_cast<double>(lines));
    }
  }
  [[nodiscard]] std::int64_t across() const noexcept { return ceil_div(columns_, width_); }
  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(bags_, length_) * across(); }
  [[nodiscard]] std::int64_t width() const noexcept { return std::min(width_, columns_); }
  [[nodiscard]] std::int64_t last_width() const noexcept {
    return columns_ - (across() - 1) * width_;
  }
  [[nodiscard]] Range at(std::int64_t block) const noexcept {
    const std::int64_t bag = block / across() * length_, column = block % across() * width_;
    return {bag, std::min(bags_, bag + length_), column, std::min(width_, columns_ - column)};
  }

 private:
  std::int64_t bags_, columns_, length_, width_;
};

// As FBGEMM has elements.
template <class T>
using Raw = std::conditional_t<std::is_same_v<T, float>, float, std::uint16_t>;

template <class T, class Index>
class Reduction {
 public:
  Reduction(const BagResults& results, const TensorRef& table, const TensorRef& indices,
            const TensorRef& offsets, const TensorRef& scale, const BagMode& mode)
      : results_(results),
        table_(elements<const Stored<T>>(table)),
        scale_(elements<const Stored<T>>(scale)),
        table_rows_(table.sizes()[0]),
        pitch_(table.strides()[0]),
        columns_(table.sizes()[1]),
        bags_{elements<const Index>(indices), elements<const Index>(offsets),
              results.rows.sizes()[0], indices.numel(), mode.padding},
        mode_(mode) {}

  [[nodiscard]] bool run(Grid& grid) {
    if (!bags_.fit(mode_.has_last)) return false;
    const bool sums = mode_.mode != BagMode::kMaximum;
    const BagBlocks blocks(bags_.count, bags_.places, columns_, sums ? 0.4 : 0.7);
    const Sum sum = sums ? sum_of(blocks.width()) : Sum();
    const Sum last =
        sums && blocks.last_width() != blocks.width() ? sum_of(blocks.last_width()) : sum;
    std::atomic<bool> all_there = true;
    grid.run_by_any(blocks.count(), [&](std::int64_t block) {
      const Range range = blocks.at(block);
      const bool there =
          sums ? add(range, range.columns == blocks.width() ? sum : last) : find_maxima(range);
      if (!there) all_there = false;
      if (range.column == 0) describe(range);
    });
    return all_there;
  }

 private:
  using Sum = typename fbgemm::EmbeddingSpMDMKernelSignature<Raw<T>, Index, Index, Raw<T>>::Type;
  using Element = Stored<T>;

  [[nodiscard]] Sum sum_of(std::int64_t width) const {
    constexpr bool kBFloat16 = std::is_same_v<T, c10::BFloat16>;
    return fbgemm::GenerateEmbeddingSpMDMWithStrides<Raw<T>, Index, Index, Raw<T>>(
        width, /*has_weight=*/scale_ != nullptr, /*normalize_by_lengths=*/false, /*prefetch=*/16,
        /*is_weight_positional=*/false, /*use_offsets=*/true, /*output_stride=*/columns_,
        /*input_stride=*/pitch_, /*scale_bias_last=*/true, /*no_bag=*/false, kBFloat16, kBFloat16);
  }

  /// The range's columns of a result's rows, from `row` on.
  template <class R>
  [[nodiscard]] kernels::index::RowColumns<R> columns_of(const TensorRef& result, std::int64_t row,
                                                         const Range& range) const {
    return {elements<R>(result) + row * columns_ + range.column, columns_, range.columns};
  }

  /// The sums of a range; FBGEMM is given the places without those of padding.
  [[nodiscard]] bool add(const Range& range, const Sum& sum) const {
    const kernels::index::CountedPlaces<Index> places(bags_, range.begin, range.end, scale_);
    const auto rows = columns_of<Element>(results_.rows, range.begin, range);
    const bool there =
        sum(range.end - range.begin, places.starts().back(), table_rows_,
            reinterpret_cast<const Raw<T>*>(table_ + range.column), places.indices(),
            places.starts().data(), places.factors(), reinterpret_cast<Raw<T>*>(rows.data));
    if (mode_.mode == BagMode::kMean) kernels::index::divide_by_sizes(rows, places.starts());
    return there;
  }

  [[nodiscard]] bool find_maxima(const Range& range) const {
    return kernels::index::bag_maxima<Element>(
        bags_, range.begin, range.end, {table_ + range.column, pitch_, range.columns}, table_rows_,
        columns_of<Element>(results_.rows, 0, range), columns_of<Index>(results_.maxima, 0, range));
  }

  /// What the gradient is computed from, beside the maxima.
  void describe(const Range& range) const {
    write_sizes(range, results_.bag_sizes);
    if (mode_.mode != BagMode::kMaximum) write_sizes(range, results_.maxima);
    if (results_.bags_of_places.numel() == 0) return;
    kernels::index::name_bags(bags_, range.begin, range.end,
                              elements<Index>(results_.bags_of_places));
  }
  void write_sizes(const Range& range, const TensorRef& sizes) const {
    auto* const to = elements<Index>(sizes);
    // A sum that nobody differentiates has as many as there are offsets.
    const std::int64_t end = range.end == bags_.count ? sizes.numel() : range.end;
    std::fill(to + range.begin, to + end, Index{});
    if (mode_.mode == BagMode::kSum) return;
    kernels::index::write_sizes(bags_, range.begin, range.end, to);
  }

  const BagResults& results_;
  const Element *const table_, *const scale_;
  const std::int64_t table_rows_, pitch_, columns_;
  const kernels::index::Bags<Index> bags_;
  const BagMode& mode_;
};

}  // namespace

bool reduce_bags(Grid& grid, const BagResults& results, const TensorRef& table,
                 const TensorRef& indices, const TensorRef& offsets, const TensorRef& scale,
                 const BagMode& mode) {
  bool there = false;
  with_floats(table.dtype(), [&]<class T>(T) {
    there =
        indices.dtype() == c10::kInt
            ? Reduction<T, std::int32_t>(results, table, indices, offsets, scale, mode).run(grid)
            : Reduction<T, std::int64_t>(results, table, indices, offsets, scale, mode).run(grid);
  });
  return there;
}

}  // namespace loom::ops
