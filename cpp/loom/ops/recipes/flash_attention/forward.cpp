// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/ceil_div.h"
#include "loom/ops/recipes/flash_attention/flash_attention.h"
#include "loom/ops/recipes/flash_attention/operands.h"

#include <limits>

namespace loom::ops {
namespace {

using c10::BFloat16;
using kernels::attention::finish_rows;
using kernels::attention::softmax_tile;

// Scores of a tile's queries with so many keys stay in L2.
constexpr std::int64_t kKeys = 512;
// A block packs the keys and values of its item, which has to disappear beside its queries' work.
constexpr std::int64_t kQueries = 4 * kTile;
// So many items are enough blocks, without cutting their queries.
constexpr std::int64_t kManyItems = 16;
// Packed keys and values of one item, in elements.
constexpr std::int64_t kMaxPacked = 2 << 20;
constexpr std::int64_t kMaxElements = 256;
// ATen's kernel reads keys and values of few queries as they lie: fast in float32.
constexpr std::int64_t kFewestQueries = 16, kFewestFloatQueries = 48;

const Scratch t_keys, t_values, t_tail, t_scores, t_weights, t_results, t_rows;

template <class T>
class Item {
 public:
  /// Packs the keys and values that queries before `end` see.
  Item(const Attention<T>& problem, std::int64_t index, std::int64_t end)
      : problem_(problem), index_(index), elements_(problem.key.elements()) {
    const std::int64_t keys = problem.seen(end), padded = round_up(keys, kTile);
    value_step_ = panel_size(padded);
    keys_ = t_keys.get<T>(padded * elements_);
    values_ = t_values.get<T>(round_up(elements_, kPanel) * padded);
    T* const tail = t_tail.get<T>(kTile * elements_);
    const auto key = problem.key.item(index), value = problem.value.item(index);
    for (std::int64_t n = 0; n < keys; n += kTile) {
      pack_panel(tile_of(key, n, tail).transposed(), keys_ + n * elements_);
      pack_tile(tile_of(value, n, tail), values_ + panel_size(n), value_step_);
    }
  }

  /// Queries [first, first + rows), a tile at most.
  void run(std::int64_t first, std::int64_t rows) const {
    constexpr bool kInPlace = std::is_same_v<T, float>;
    // A cache line or two more, so that the rows do not all begin in the same set of the cache.
    constexpr std::int64_t kScoresLd = kKeys + 16, kWeightsLd = kKeys + 32;
    float* const scores = t_scores.get<float>(kTile * kScoresLd);
    T* weights;
    if constexpr (kInPlace) {
      weights = scores;
    } else {
      weights = t_weights.get<T>(kTile * kWeightsLd);
    }
    const std::int64_t weights_ld = kInPlace ? kScoresLd : kWeightsLd;
    const std::int64_t results_ld = round_up(elements_, 16);
    float* const results = t_results.get<float>(kTile * results_ld);
    float* const maximum = t_rows.get<float>(2 * kTile);
    float* const sum = maximum + kTile;
    std::fill_n(maximum, kTile, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, kTile, 0.F);

    const MatrixView<const T> query = problem_.query.item(index_).part(first, 0, rows, elements_);
    const std::int64_t keys = problem_.seen(first + rows);
    for (std::int64_t n = 0; n < keys; n += kKeys) {
      const std::int64_t columns = std::min(kKeys, keys - n), padded = round_up(columns, kPadding);
      for (std::int64_t j = 0; j < padded; j += kTile) {
        multiply_panel(query, keys_ + (n + j) * elements_, std::min(kTile, padded - j), scores + j,
                       kScoresLd, false);
      }
      softmax_tile<Stored<T>>({.rows = rows,
                               .columns = columns,
                               .padded = padded,
                               .visible = problem_.causal ? first + 1 - n : columns,
                               .more = problem_.causal ? 1 : 0,
                               .scale = problem_.scale,
                               .scores = scores,
                               .scores_ld = kScoresLd,
                               .mask = stored(problem_.mask.at(index_, first, n)),
                               .mask_ld = problem_.mask.query_stride(),
                               .weights = stored(weights),
                               .weights_ld = weights_ld,
                               .maximum = maximum,
                               .sum = sum,
                               .results = n > 0 ? results : nullptr,
                               .results_ld = results_ld,
                               .result_columns = elements_});
      const MatrixView<const T> left{weights, rows, padded, weights_ld, 1};
      multiply_tiles(left, values_ + panel_size(n), value_step_, elements_, results, results_ld,
                     n > 0);
    }
    const MatrixView<T> output = problem_.output.item(index_).part(first, 0, rows, elements_);
    finish_rows<Stored<T>>(stored(output.data), output.row_stride, results, results_ld, rows,
                           elements_, maximum, sum,
                           problem_.log_sums + index_ * problem_.query.positions() + first);
  }

 private:
  const Attention<T>& problem_;
  const std::int64_t index_, elements_;
  std::int64_t value_step_;
  T *keys_, *values_;
};

template <class T>
void run(Grid& grid, const Attention<T>& problem) {
  const std::int64_t items = problem.query.items(), queries = problem.query.positions();
  const std::int64_t length = items >= kManyItems ? std::max(queries, kTile) : kQueries;
  const std::int64_t parts = ceil_div(queries, length);
  const double work = 2.0 * static_cast<double>(queries) *
                      static_cast<double>(problem.key.positions() * problem.key.elements());
  const std::int64_t together = parts > 1 ? 1 : items_of_block(work, items);
  const auto run_block = [&](std::int64_t block) {
    const MatrixUnitScope<T> scope;
    const std::int64_t first = block % parts * length;
    const std::int64_t end = std::min(first + length, queries);
    const std::int64_t begin = block / parts * together;
    for (std::int64_t i = begin; i < std::min(begin + together, items); ++i) {
      const Item<T> item(problem, i, end);
      for (std::int64_t m = first; m < end; m += kTile) item.run(m, std::min(kTile, end - m));
    }
  };
  grid.run_by_any(ceil_div(items, together) * parts, run_block);
}

template <class T>
bool suits_as(const at::Tensor& tensor) {
  // Sizes of 1 have any stride in PyTorch.
  const auto dense = [&](std::int64_t dim, std::int64_t least) {
    return tensor.size(dim) == 1 || tensor.stride(dim) >= least;
  };
  if (tensor.size(3) != 1 && tensor.stride(3) != 1) return false;
  if (!dense(2, tensor.size(3)) || !dense(1, 0) || !dense(0, 0)) return false;
  if constexpr (std::is_same_v<T, float>) return true;
  for (std::int64_t dim = 0; dim < 3; ++dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) % 2 != 0) return false;
  }
  return tensor.size(3) % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 4 == 0;
}

}  // namespace

bool suits_attention_mask(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  if (!mask.defined()) return true;
  const auto fits = [&](std::int64_t dim, std::int64_t size) {
    return mask.size(dim) == 1 || mask.size(dim) == size;
  };
  if (mask.scalar_type() != query.scalar_type() || mask.is_neg()) return false;
  if (mask.dim() != 2 && mask.dim() != 4) return false;
  if (mask.dim() == 4 && !(fits(0, query.size(0)) && fits(1, query.size(1)))) return false;
  return fits(-2, query.size(2)) && mask.size(-1) == key.size(2) &&
         (mask.size(-1) == 1 || mask.stride(-1) == 1);
}

bool suits_flash_attention(const at::Tensor& tensor) {
  if (tensor.is_neg() || tensor.dim() != 4) return false;
  if (tensor.scalar_type() == at::kFloat) return can_multiply<float>() && suits_as<float>(tensor);
  if (tensor.scalar_type() != at::kBFloat16) return false;
  return can_multiply<BFloat16>() && suits_as<BFloat16>(tensor);
}

bool suits_flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const at::Tensor& mask) {
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (tensor->scalar_type() != query.scalar_type() || !suits_flash_attention(*tensor)) {
      return false;
    }
  }
  for (const std::int64_t dim : {0, 1, 3}) {
    if (key.size(dim) != query.size(dim)) return false;
  }
  const std::int64_t fewest =
      query.scalar_type() == at::kFloat ? kFewestFloatQueries : kFewestQueries;
  return key.sizes() == value.sizes() && key.size(2) > 0 && query.size(2) >= fewest &&
         query.size(3) <= kMaxElements && key.size(2) * key.size(3) <= kMaxPacked &&
         suits_attention_mask(mask, query, key);
}

void flash_attention(Grid& grid, const TensorRef& output, const TensorRef& log_sum,
                     const TensorRef& query, const TensorRef& key, const TensorRef& value,
                     const TensorRef& mask, bool causal, double scale) {
  if (query.dtype() == c10::ScalarType::Float) {
    run<float>(grid, {output, log_sum, query, key, value, mask, causal, scale});
  } else {
    run<BFloat16>(grid, {output, log_sum, query, key, value, mask, causal, scale});
  }
}

}  // namespace loom::ops
