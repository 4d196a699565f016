// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/bags.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/index/row_maxima.h"
#include "loom/ops/launch/elements.h"

#include <algorithm>
#include <atomic>
#include <fbgemm/FbgemmEmbedding.h>
#include <iterator>
#include <type_traits>
#include <vector>

namespace loom::ops {
namespace {

/// Which indices are whose.
template <class Index>
struct Bags {
  const Index *indices, *offsets;
  std::int64_t count, places;  ///< how many bags and indices there are

  [[nodiscard]] std::int64_t begin(std::int64_t bag) const noexcept {
    return bag < count ? offsets[bag] : places;
  }
  /// Whether each begins where the one before ends, and they have all places.
  [[nodiscard]] bool fit(bool has_last) const noexcept {
    if (offsets[0] != 0 || (has_last && offsets[count] != places)) return false;
    bool ordered = true;
    for (std::int64_t b = 0; b < count; ++b) ordered &= begin(b) <= begin(b + 1);
    return ordered;
  }
};

/// Some bags, and some columns of their rows.
struct Range {
  std::int64_t begin, end, column, columns;
};

/// How bags are cut.
class Blocks {
 public:
  Blocks(std::int64_t bags, std::int64_t places, std::int64_t columns, double cost) noexcept
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
              results.rows.sizes()[0], indices.numel()},
        mode_(mode) {}

  [[nodiscard]] bool run(Grid& grid) {
    if (!bags_.fit(mode_.has_last)) return false;
    const bool sums = mode_.mode != BagMode::kMaximum;
    const Blocks blocks(bags_.count, bags_.places, columns_, sums ? 0.4 : 0.7);
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

  [[nodiscard]] Element* row(std::int64_t bag) const {
    return elements<Element>(results_.rows) + bag * columns_;
  }
  [[nodiscard]] bool is_padding(Index index) const {
    return mode_.padding >= 0 && index == static_cast<Index>(mode_.padding);
  }
  /// How many places count.
  [[nodiscard]] std::int64_t size(std::int64_t bag) const {
    const Index *const begin = bags_.indices + bags_.begin(bag), *const end = bags_.indices +
                                                                              bags_.begin(bag + 1);
    return end - begin -
           (mode_.padding >= 0
                ? std::count_if(begin, end, [this](Index i) { return is_padding(i); })
                : 0);
  }

  /// The sums of a range; FBGEMM is given the places without those of padding.
  [[nodiscard]] bool add(const Range& range, const Sum& sum) const {
    const std::int64_t first = bags_.begin(range.begin), last = bags_.begin(range.end);
    std::vector<Index> starts, kept;
    std::vector<float> factors;
    for (std::int64_t b = range.begin; b <= range.end; ++b) {
      starts.push_back(static_cast<Index>(bags_.begin(b) - first));
    }
    if (scale_ != nullptr) {
      factors.resize(static_cast<std::size_t>(last - first));
      kernels::widen_row<Element>(factors.data(), scale_ + first, last - first);
    }
    const Index* places = bags_.indices + first;
    if (mode_.padding >= 0) {
      leave_out_padding(range, starts, kept, factors);
      places = kept.data();
    }
    const bool there =
        sum(range.end - range.begin, starts.back(), table_rows_,
            reinterpret_cast<const Raw<T>*>(table_ + range.column), places, starts.data(),
            factors.data(), reinterpret_cast<Raw<T>*>(row(range.begin) + range.column));
    if (mode_.mode == BagMode::kMean) divide(range, starts);
    return there;
  }

  void leave_out_padding(const Range& range, std::vector<Index>& starts, std::vector<Index>& kept,
                         std::vector<float>& factors) const {
    const std::int64_t first = bags_.begin(range.begin);
    for (std::int64_t b = range.begin; b < range.end; ++b) {
      starts[static_cast<std::size_t>(b - range.begin)] = static_cast<Index>(kept.size());
      for (std::int64_t i = bags_.begin(b); i < bags_.begin(b + 1); ++i) {
        if (is_padding(bags_.indices[i])) continue;
        if (scale_ != nullptr) factors[kept.size()] = factors[static_cast<std::size_t>(i - first)];
        kept.push_back(bags_.indices[i]);
      }
    }
    starts.back() = static_cast<Index>(kept.size());
  }

  /// By the numbers of places, which are rounded to the dtype first, as ATen's are.
  void divide(const Range& range, const std::vector<Index>& starts) const {
    std::vector<float> wide(static_cast<std::size_t>(range.columns));
    for (std::int64_t b = range.begin; b < range.end; ++b) {
      const auto at = static_cast<std::size_t>(b - range.begin);
      const std::int64_t size = starts[at + 1] - starts[at];
      if (size <= 1) continue;
      const float by = static_cast<float>(static_cast<T>(size));
      Element* const to = row(b) + range.column;
      if constexpr (std::is_same_v<T, float>) {
        for (std::int64_t c = 0; c < range.columns; ++c) to[c] /= by;
      } else {
        kernels::widen_row<Element>(wide.data(), to, range.columns);
        for (float& value : wide) value /= by;
        kernels::round_row<Element>(to, wide.data(), range.columns);
      }
    }
  }

  [[nodiscard]] bool find_maxima(const Range& range) const {
    std::vector<const Element*> rows;
    std::vector<Index> kept;
    std::vector<std::int32_t> which(static_cast<std::size_t>(range.columns));
    bool there = true;
    for (std::int64_t b = range.begin; b < range.end; ++b) {
      rows.clear();
      kept.clear();
      for (std::int64_t i = bags_.begin(b); i < bags_.begin(b + 1); ++i) {
        const Index index = bags_.indices[i];
        if (index < 0 || index >= table_rows_) {
          there = false;
        } else if (!is_padding(index)) {
          rows.push_back(table_ + index * pitch_ + range.column);
          kept.push_back(index);
        }
      }
      Element* const to = row(b) + range.column;
      Index* const maxima = elements<Index>(results_.maxima) + b * columns_ + range.column;
      if (rows.empty()) {
        std::fill_n(to, range.columns, Element{});
        std::fill_n(maxima, range.columns, Index{});
        continue;
      }
      kernels::index::row_maxima<Element>(rows.data(), static_cast<std::int32_t>(rows.size()),
                                          range.columns, to, which.data());
      for (std::int64_t c = 0; c < range.columns; ++c) {
        maxima[c] = kept[static_cast<std::size_t>(which[static_cast<std::size_t>(c)])];
      }
    }
    return there;
  }

  /// What the gradient is computed from, beside the maxima.
  void describe(const Range& range) const {
    const bool sums = mode_.mode == BagMode::kSum;
    const auto fill = [&](const TensorRef& sizes) {
      for (std::int64_t b = range.begin; b < range.end; ++b) {
        elements<Index>(sizes)[b] = sums ? Index{} : static_cast<Index>(size(b));
      }
      // A sum that nobody differentiates has as many as there are offsets.
      for (std::int64_t b = bags_.count; b < sizes.numel() && range.end == bags_.count; ++b) {
        elements<Index>(sizes)[b] = Index{};
      }
    };
    fill(results_.bag_sizes);
    if (mode_.mode != BagMode::kMaximum) fill(results_.maxima);
    if (results_.bags_of_places.numel() == 0) return;
    for (std::int64_t b = range.begin; b < range.end; ++b) {
      std::fill(elements<Index>(results_.bags_of_places) + bags_.begin(b),
                elements<Index>(results_.bags_of_places) + bags_.begin(b + 1),
                static_cast<Index>(b));
    }
  }

  const BagResults& results_;
  const Element *const table_, *const scale_;
  const std::int64_t table_rows_, pitch_, columns_;
  const Bags<Index> bags_;
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
