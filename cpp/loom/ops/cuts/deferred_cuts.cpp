// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/deferred_cuts.h"

#include <algorithm>

namespace loom::ops {

std::optional<DeferredSplit> cut_batch(const SplitRule& rule, const Shapes& shapes,
                                       const ResultSizes& results) {
  const at::Tensor& first = *shapes.first(rule);
  std::int64_t dim = 0;
  while (dim < rule.which && dim < first.dim() && first.size(dim) == 1) ++dim;
  const auto has = [&](c10::IntArrayRef sizes) {
    return dim < static_cast<std::int64_t>(sizes.size()) && sizes[dim] == first.size(dim);
  };
  if (dim == rule.which || !has(first.sizes())) return std::nullopt;
  if (dim > 0 && shapes.has_channels_last()) return std::nullopt;
  DeferredSplit split;
  split.items = first.size(dim);
  for (const at::Tensor& tensor : shapes.tensors) {
    if (tensor.defined() && !has(tensor.sizes())) return std::nullopt;
    split.arguments.push_back(tensor.defined() ? static_cast<std::int8_t>(dim)
                                               : DeferredSplit::kWhole);
  }
  for (const auto& sizes : results) {
    if (sizes && !has(*sizes)) return std::nullopt;
    split.results.push_back(sizes ? static_cast<std::int8_t>(dim) : DeferredSplit::kWhole);
  }
  return split;
}

std::optional<DeferredSplit> cut_rows(const SplitRule& rule, const Shapes& shapes,
                                      Arguments arguments, const ResultSizes& results) {
  const at::Tensor& first = *shapes.first(rule);
  if (first.dim() == 0) return std::nullopt;
  DeferredSplit split;
  split.items = first.size(0);
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const at::Tensor& tensor = shapes.tensors[i];
    const bool cuts = tensor.defined() && Shapes::is_cut(rule, i) && tensor.numel() > 1;
    if (cuts && (tensor.dim() == 0 || tensor.size(0) != split.items)) return std::nullopt;
    // A batch of matrices goes with those of what is cut.
    const bool goes_along = tensor.defined() && tensor.dim() > 2 && tensor.dim() >= first.dim();
    if (!cuts && goes_along && tensor.size(0) != 1) return std::nullopt;
    split.arguments.push_back(cuts ? 0 : DeferredSplit::kWhole);
    if (!arguments[i].isTensorList()) continue;
    for (const at::Tensor& listed : arguments[i].toTensorList()) {  // a factor for each row, say
      if (listed.numel() != 1) return std::nullopt;
    }
  }
  for (const auto& sizes : results) {
    if (!sizes || sizes->empty() || (*sizes)[0] != split.items) return std::nullopt;
    split.results.push_back(0);
  }
  return split;
}

std::optional<DeferredSplit> cut_grid(const SplitRule& rule, const Shapes& shapes,
                                      const ResultSizes& results) {
  const at::Tensor& grid = shapes.tensors[static_cast<std::size_t>(rule.which)];
  if (!grid.defined() || grid.dim() < 3 || grid.size(0) >= kEnoughItems) return std::nullopt;
  DeferredSplit split;
  split.items = grid.size(1);
  split.arguments.assign(shapes.tensors.size(), DeferredSplit::kWhole);
  split.arguments[static_cast<std::size_t>(rule.which)] = 1;
  for (const auto& sizes : results) {
    if (!sizes || sizes->size() < 3 || (*sizes)[2] != split.items) return std::nullopt;
    split.results.push_back(2);
  }
  return split;
}

std::optional<DeferredSplit> cut_index(Arguments arguments, const ResultSizes& results) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto indices = arguments[1].toOptionalTensorList();
  if (results.size() != 1 || !results[0] || results[0]->empty() || indices.empty()) {
    return std::nullopt;
  }
  DeferredSplit split;
  split.arguments.assign(arguments.size(), DeferredSplit::kWhole);
  split.results = {0};
  const auto defined = [&](std::size_t i) {
    const std::optional<at::Tensor> index = indices[i];
    return index && index->defined();
  };
  // Indices with something between them come first in the result.
  std::size_t first = 0, last = indices.size();
  while (first < last && !defined(first)) ++first;
  while (last > first && !defined(last - 1)) --last;
  bool together = true;
  std::int64_t dims = -1;
  for (std::size_t i = first; i < last; ++i) {
    together = together && defined(i);
    if (!defined(i)) continue;
    const at::Tensor index = *std::optional<at::Tensor>(indices[i]);
    if (index.scalar_type() != c10::kLong && index.scalar_type() != c10::kInt) return std::nullopt;
    if (dims >= 0 && index.dim() != dims) return std::nullopt;
    dims = index.dim();
    if (dims > 0) split.items = std::max(split.items, index.size(0));
  }
  if (first > 0 && together) {
    split.items = self.size(0);
    split.arguments[0] = 0;
  } else {
    split.arguments[1] = 0;
  }
  if ((*results[0])[0] != split.items) return std::nullopt;
  return split;
}

}  // namespace loom::ops
