// SPDX-License-Identifier: BSD-3-Clause
// Tiles are keys x queries here: then the large operands of all five products lie as they should,
// and only tiles of queries are turned.
#include "loom/base/ceil_div.h"
#include "loom/ops/recipes/flash_attention/flash_attention.h"
#include "loom/ops/recipes/flash_attention/operands.h"

#include <limits>

namespace loom::ops {
namespace {

using c10::BFloat16;
using kernels::attention::GradientTile;

const Scratch t_keys, t_key_sums, t_value_sums, t_query, t_tail, t_tiles, t_sums, t_rows;

template <class T>
struct Problem {
  Heads<T> to_query, to_key, to_value;
  Heads<const T> grad, query, key, value, output;
  Mask<T> mask;
  const float* log_sums;
  bool causal;
  float scale;
};

/// A tile of queries, or of what belongs to them, as right operand of two products.
template <class T>
struct QueryTile {
  T* turned;  ///< elements x queries
  T* plain;   ///< queries x elements
  std::int64_t rows;

  QueryTile(const MatrixView<const T>& from, std::int64_t first, T* room) {
    turned = room;
    plain = room + panel_size(from.columns);
    T* const tail = t_tail.get<T>(kTile * from.columns);
    const MatrixView<const T> tile = tile_of(from, first, tail);
    rows = tile.rows;
    pack_panel(tile.transposed(), turned);
    pack_tile(tile, plain, panel_size(kTile));
  }
  static std::int64_t size(std::int64_t elements) {
    return panel_size(elements) + panel_size(round_up(elements, kPanel));
  }
};

template <class T>
class Item {
 public:
  Item(const Problem<T>& problem, std::int64_t index)
      : p_(problem),
        index_(index),
        elements_(problem.key.elements()),
        keys_(problem.key.positions()),
        // A cache line more, so that the rows do not all begin in the same set of the cache.
        turned_ld_(round_up(keys_, kTile) + 64 / static_cast<std::int64_t>(sizeof(T))) {
    turn_keys();
    key_sums_ = t_key_sums.get<float>(keys_ * elements_);
    value_sums_ = t_value_sums.get<float>(keys_ * elements_);
    std::fill_n(key_sums_, keys_ * elements_, 0.F);
    std::fill_n(value_sums_, keys_ * elements_, 0.F);
  }

  void run() {
    const std::int64_t queries = p_.query.positions();
    for (std::int64_t m = 0; m < queries; m += kTile) run_queries(m, std::min(kTile, queries - m));
    const MatrixView<T> to_key = p_.to_key.item(index_), to_value = p_.to_value.item(index_);
    kernels::attention::store_rows<Element>(stored(to_key.data), to_key.row_stride, key_sums_,
                                            elements_, keys_, elements_);
    kernels::attention::store_rows<Element>(stored(to_value.data), to_value.row_stride, value_sums_,
                                            elements_, keys_, elements_);
  }

 private:
  using Element = Stored<T>;

  // elements x keys, with zeros after the last key.
  void turn_keys() {
    using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;
    const MatrixView<const T> from = p_.key.item(index_);
    turned_ = t_keys.get<T>(elements_ * turned_ld_);
    auto* const to = reinterpret_cast<Bits*>(turned_);
    transpose(keys_, elements_, reinterpret_cast<const Bits*>(from.data), from.row_stride, to,
              turned_ld_);
    for (std::int64_t i = 0; i < elements_; ++i) {
      std::fill(to + i * turned_ld_ + keys_, to + (i + 1) * turned_ld_, Bits{});
    }
  }

  // What belongs to each query; those beside the tile have no weight.
  void set_rows(std::int64_t first, std::int64_t rows) {
    log_sums_ = t_rows.get<float>(2 * kTile);
    products_ = log_sums_ + kTile;
    std::copy_n(p_.log_sums + index_ * p_.query.positions() + first, rows, log_sums_);
    std::fill(log_sums_ + rows, log_sums_ + kTile, std::numeric_limits<float>::infinity());
    const MatrixView<const T> grad = p_.grad.item(index_), output = p_.output.item(index_);
    kernels::attention::row_products<Element>(
        products_, stored(grad.data + first * grad.row_stride), grad.row_stride,
        stored(output.data + first * output.row_stride), output.row_stride, rows, elements_);
    std::fill(products_ + rows, products_ + kTile, 0.F);
  }

  // A tile of the mask, turned.
  const float* mask_tile(std::int64_t first, std::int64_t rows, std::int64_t n, std::int64_t keys,
                         float* to) const {
    const T* from = p_.mask.at(index_, first, n);
    if (from == nullptr) return nullptr;
    kernels::attention::turn_mask<Element>(to, stored(from), p_.mask.query_stride(), rows, keys);
    return to;
  }

  void run_queries(std::int64_t first, std::int64_t rows) {
    T* const room = t_query.get<T>(2 * QueryTile<T>::size(elements_));
    const QueryTile<T> query(p_.query.item(index_), first, room);
    const QueryTile<T> grad(p_.grad.item(index_), first, room + QueryTile<T>::size(elements_));
    set_rows(first, rows);
    const std::int64_t keys = p_.causal ? std::min(first + rows, keys_) : keys_;
    float* const turned_sums = t_sums.get<float>(2 * elements_ * kTile);
    for (std::int64_t n = 0; n < keys; n += kTile) {
      run_tile(query, grad, first, rows, n, std::min(kTile, keys_ - n), turned_sums);
    }
    float* const sums = turned_sums + elements_ * kTile;
    transpose(elements_, rows, turned_sums, kTile, sums, elements_);
    const MatrixView<T> to_query = p_.to_query.item(index_);
    kernels::attention::store_rows<Element>(stored(to_query.data + first * to_query.row_stride),
                                            to_query.row_stride, sums, elements_, rows, elements_);
  }

  void run_tile(const QueryTile<T>& query, const QueryTile<T>& grad, std::int64_t first,
                std::int64_t rows, std::int64_t n, std::int64_t keys, float* turned_sums) {
    constexpr std::int64_t kSize = kTile * kTile;
    float* const scores = t_tiles.get<float>(6 * kSize);
    float* const gradients = scores + kSize;
    constexpr bool kInPlace = std::is_same_v<T, float>;
    const auto tile_at = [&](std::int64_t index) {
      return reinterpret_cast<Element*>(scores + index * kSize);
    };
    GradientTile<Element> tile{.rows = keys,
                               .columns = query.rows,
                               .hidden = n - first,
                               .causal = p_.causal && n + kTile > first,
                               .scale = p_.scale,
                               .log_sums = log_sums_,
                               .products = products_,
                               .mask = mask_tile(first, rows, n, keys, gradients + kSize),
                               .scores = scores,
                               .gradients = gradients,
                               .weights = tile_at(kInPlace ? 0 : 3),
                               .score_gradients = tile_at(kInPlace ? 1 : 4),
                               .packed_gradients = tile_at(kInPlace ? 1 : 5)};
    const auto part = [&](const Heads<const T>& heads) {
      return heads.item(index_).part(n, 0, keys, elements_);
    };
    const auto elements_of = [](const Element* tile_elements) {
      return reinterpret_cast<const T*>(tile_elements);
    };
    const auto left = [&](const Element* tile_elements) {
      return MatrixView<const T>{elements_of(tile_elements), keys, query.rows, kTile, 1};
    };
    constexpr std::int64_t kStep = panel_size(kTile);
    multiply_panel(part(p_.key), query.turned, query.rows, scores, kTile, false);
    kernels::attention::tile_weights<Element>(tile);
    multiply_tiles(left(tile.weights), grad.plain, kStep, elements_, value_sums_ + n * elements_,
                   elements_, true);
    multiply_panel(part(p_.value), grad.turned, query.rows, gradients, kTile, false);
    kernels::attention::tile_gradients<Element>(tile);
    multiply_tiles(left(tile.score_gradients), query.plain, kStep, elements_,
                   key_sums_ + n * elements_, elements_, true);
    const MatrixView<const T> turned{turned_ + n, elements_, round_up(keys, kPadding), turned_ld_,
                                     1};
    multiply_panel(turned, elements_of(tile.packed_gradients), query.rows, turned_sums, kTile,
                   n > 0);
  }

  const Problem<T>& p_;
  const std::int64_t index_, elements_, keys_, turned_ld_;
  T* turned_;
  float *key_sums_, *value_sums_, *log_sums_ = nullptr, *products_ = nullptr;
};

template <class T>
void run(Grid& grid, const Problem<T>& problem) {
  const std::int64_t items = problem.query.items();
  const double work = 5.0 * static_cast<double>(problem.query.positions()) *
                      static_cast<double>(problem.key.positions() * problem.key.elements());
  const std::int64_t together = items_of_block(work, items);
  const auto run_block = [&](std::int64_t block) {
    const MatrixUnitScope<T> scope;
    const std::int64_t begin = block * together;
    for (std::int64_t i = begin; i < std::min(begin + together, items); ++i) {
      Item<T>(problem, i).run();
    }
  };
  grid.run_by_any(ceil_div(items, together), run_block);
}

template <class T>
Problem<T> problem_of(const TensorRef& to_query, const TensorRef& to_key, const TensorRef& to_value,
                      const TensorRef& grad, const TensorRef& query, const TensorRef& key,
                      const TensorRef& value, const TensorRef& output, const TensorRef& log_sum,
                      const TensorRef& mask, bool causal, double scale) {
  return {.to_query = Heads<T>(to_query),
          .to_key = Heads<T>(to_key),
          .to_value = Heads<T>(to_value),
          .grad = Heads<const T>(grad),
          .query = Heads<const T>(query),
          .key = Heads<const T>(key),
          .value = Heads<const T>(value),
          .output = Heads<const T>(output),
          .mask = Mask<T>(mask, query.sizes()[1]),
          .log_sums = reinterpret_cast<const float*>(log_sum.data()),
          .causal = causal,
          .scale = static_cast<float>(scale)};
}

}  // namespace

void flash_attention_backward(Grid& grid, const TensorRef& to_query, const TensorRef& to_key,
                              const TensorRef& to_value, const TensorRef& grad,
                              const TensorRef& query, const TensorRef& key, const TensorRef& value,
                              const TensorRef& output, const TensorRef& log_sum,
                              const TensorRef& mask, bool causal, double scale) {
  if (query.dtype() == c10::ScalarType::Float) {
    run(grid, problem_of<float>(to_query, to_key, to_value, grad, query, key, value, output,
                                log_sum, mask, causal, scale));
  } else {
    run(grid, problem_of<BFloat16>(to_query, to_key, to_value, grad, query, key, value, output,
                                   log_sum, mask, causal, scale));
  }
}

}  // namespace loom::ops
