// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/flash_attention/few_queries.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/attention/few_queries.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/ops/recipes/flash_attention/flash_attention.h"
#include "loom/ops/recipes/flash_attention/operands.h"

#include <algorithm>

namespace loom::ops {
namespace {

using kernels::attention::attend_part;
using kernels::attention::combine_parts;
using kernels::attention::KeyRange;
using kernels::attention::keys_seen;
using kernels::attention::kKeyGroup;
using kernels::attention::padded_row;
using kernels::attention::part_floats;

// Queries of a group: with more of them packing its keys pays.
constexpr std::int64_t kMaxRows = 32, kMaxFloatRows = 16;
// Scores of a part stay in L2, and parts are long enough for reading ahead.
constexpr std::int64_t kMaxPart = 512, kMinPart = 64;
// Nanoseconds: what a block is worth at least, and a byte and a multiply-add of a core.
constexpr double kLeastBlock = 4000, kByte = 0.05, kMultiplyAdd = 0.03;
// Floats of parts that are put together at once.
constexpr std::int64_t kFinishedFloats = 64 << 10;

const Scratch t_parts, t_queries, t_scores;

/// All queries, keys and values of some heads that share keys are a group.
template <class T>
struct Problem : Attention<T> {
  using Attention<T>::Attention, Attention<T>::query, Attention<T>::key;

  [[nodiscard]] std::int64_t groups() const noexcept { return key.items(); }
  /// Heads of queries that share one of keys.
  [[nodiscard]] std::int64_t shared() const noexcept { return query.items() / key.items(); }
  [[nodiscard]] std::int64_t rows() const noexcept { return shared() * query.positions(); }
  [[nodiscard]] std::int64_t keys() const noexcept { return this->seen(query.positions()); }
  /// Row `row` of a group: which item and which position of the queries it is.
  [[nodiscard]] std::int64_t item(std::int64_t group, std::int64_t row) const noexcept {
    return group * shared() + row / query.positions();
  }
  [[nodiscard]] std::int64_t position(std::int64_t row) const noexcept {
    return row % query.positions();
  }
};

/// How keys are cut: by shapes alone.
struct Cut {
  std::int64_t part;      ///< keys of a part
  std::int64_t parts;     ///< of a group
  std::int64_t together;  ///< parts that make a block
};

template <class T>
Cut cut(const Problem<T>& p) {
  const double key_cost = static_cast<double>(p.key.elements()) * 2 *
                          (sizeof(T) * kByte + static_cast<double>(p.rows()) * kMultiplyAdd);
  const auto wanted = static_cast<std::int64_t>(kLeastBlock / key_cost);
  const std::int64_t longest = std::clamp(round_up(wanted, kKeyGroup), kMinPart, kMaxPart);
  const std::int64_t parts = ceil_div(p.keys(), longest);
  const std::int64_t part = round_up(ceil_div(p.keys(), parts), kKeyGroup);
  const double part_cost = key_cost * static_cast<double>(part);
  const auto together = static_cast<std::int64_t>(kLeastBlock / part_cost);
  return {part, ceil_div(p.keys(), part), std::max<std::int64_t>(together, 1)};
}

/// The rows of a group while some of its keys are looked at.
template <class T>
class Group {
 public:
  Group(const Problem<T>& problem, std::int64_t index)
      : problem_(problem), index_(index), elements_(problem.key.elements()) {
    const std::int64_t rows = problem.rows();
    queries_ = t_queries.get<float>(rows * padded_row(elements_));
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto query = problem.query.item(problem.item(index, row));
      float* const to = queries_ + row * padded_row(elements_);
      kernels::widen_row<Stored<T>>(
          to, stored(query.data + problem.position(row) * query.row_stride), elements_);
      std::fill(to + elements_, to + padded_row(elements_), 0.F);
    }
  }

  /// Keys [first, first + count); each row's part is written to `to`.
  void run(std::int64_t first, std::int64_t count, float* to) const {
    std::int64_t visible[kMaxRows];
    const Stored<T>* masks[kMaxRows];
    const std::int64_t rows = problem_.rows();
    const bool masked = problem_.mask.at(0, 0, 0) != nullptr;
    for (std::int64_t row = 0; row < rows; ++row) {
      visible[row] = problem_.causal ? problem_.position(row) + 1 - first : count;
      const std::int64_t item = problem_.item(index_, row);
      masks[row] = stored(problem_.mask.at(item, problem_.position(row), first));
    }
    if (masked) {
      const KeyRange seen = keys_seen(masks, rows, count);
      for (std::int64_t row = 0; row < rows; ++row) {
        masks[row] += seen.first;
        visible[row] -= seen.first;
      }
      first += seen.first;
      count = seen.last - seen.first;
    }
    const auto keys = problem_.key.item(index_), values = problem_.value.item(index_);
    attend_part<Stored<T>>({.rows = rows,
                            .elements = elements_,
                            .queries = queries_,
                            .keys = stored(keys.data + first * keys.row_stride),
                            .key_stride = keys.row_stride,
                            .values = stored(values.data + first * values.row_stride),
                            .value_stride = values.row_stride,
                            .count = count,
                            .visible = visible,
                            .masks = masked ? masks : nullptr,
                            .scale = problem_.scale,
                            .scores = t_scores.get<float>(rows * padded_row(count)),
                            .parts = to});
  }

 private:
  const Problem<T>& problem_;
  const std::int64_t index_, elements_;
  float* queries_;
};

/// Puts the parts of each row of a group together, which are `stride` floats apart.
template <class T>
void finish(const Problem<T>& p, std::int64_t group, const float* parts, std::int64_t count,
            std::int64_t stride) {
  const std::int64_t elements = p.key.elements();
  for (std::int64_t row = 0; row < p.rows(); ++row, parts += part_floats(elements)) {
    const std::int64_t item = p.item(group, row), position = p.position(row);
    const auto output = p.output.item(item);
    combine_parts<Stored<T>>(stored(output.data + position * output.row_stride), parts, stride,
                             count, elements, p.log_sums + item * p.query.positions() + position);
  }
}

template <class T>
void run(Grid& grid, const Problem<T>& problem) {
  const auto [part, parts, together] = cut(problem);
  const std::int64_t stride = problem.rows() * part_floats(problem.key.elements());
  const std::int64_t count = problem.groups() * parts;
  float* const all = t_parts.get<float>(count * stride);
  grid.run_by_any(ceil_div(count, together), [&](std::int64_t block) {
    const std::int64_t end = std::min((block + 1) * together, count);
    for (std::int64_t i = block * together; i < end; ++i) {
      const Group<T> group(problem, i / parts);
      const std::int64_t first = i % parts * part;
      group.run(first, std::min(part, problem.keys() - first), all + i * stride);
      if (parts == 1) finish(problem, i, all + i * stride, 1, stride);
    }
  });
  if (parts == 1) return;
  const std::int64_t groups = std::max<std::int64_t>(kFinishedFloats / (parts * stride), 1);
  grid.run_by_any(ceil_div(problem.groups(), groups), [&](std::int64_t block) {
    const std::int64_t end = std::min((block + 1) * groups, problem.groups());
    for (std::int64_t i = block * groups; i < end; ++i) {
      finish(problem, i, all + i * parts * stride, parts, stride);
    }
  });
}

bool has_dense_elements(const at::Tensor& tensor) {
  return !tensor.is_neg() && tensor.dim() == 4 && (tensor.size(3) == 1 || tensor.stride(3) == 1);
}

}  // namespace

bool suits_few_queries(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const at::Tensor& mask) {
  const c10::ScalarType dtype = query.scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) return false;
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (tensor->scalar_type() != dtype || !has_dense_elements(*tensor)) return false;
  }
  const std::int64_t heads = key.size(1);
  if (key.sizes() != value.sizes() || query.numel() == 0 || key.numel() == 0) return false;
  if (query.size(0) != key.size(0) || query.size(3) != key.size(3) || query.size(1) % heads != 0) {
    return false;
  }
  const std::int64_t rows = query.size(1) / heads * query.size(2);
  if (rows > (dtype == at::kFloat ? kMaxFloatRows : kMaxRows)) return false;
  return suits_attention_mask(mask, query, key);
}

void attend_few_queries(Grid& grid, const TensorRef& output, const TensorRef& log_sum,
                        const TensorRef& query, const TensorRef& key, const TensorRef& value,
                        const TensorRef& mask, bool causal, double scale) {
  with_floats(query.dtype(), [&]<class T>(T) {
    run<T>(grid, {output, log_sum, query, key, value, mask, causal, scale});
  });
}

}  // namespace loom::ops
