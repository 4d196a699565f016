// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/deferred_split.h"

#include "loom/ops/cuts/deferred_cuts.h"
#include "loom/ops/launch/call_length.h"
#include "loom/ops/launch/self_overlap.h"
#include "loom/ops/launch/split.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

namespace loom::ops {
namespace {

using Kind = SplitRule::Kind;

struct Entry {
  std::string_view name;
  SplitRule rule;
};

// Costs are of an element, relative to an addition: rough, since blocks of some tens of
// microseconds are as good as any others.
constexpr std::array kTable = {
    Entry{"aten::complex", {Kind::kPointwise, 0, 1}},  // not tagged
    Entry{"aten::polar", {Kind::kPointwise, 0, 20}},
    Entry{"aten::_prelu_kernel_backward", {Kind::kPointwise, 0, 3}},
    Entry{"aten::binary_cross_entropy", {Kind::kPointwise, 0, 20}},
    Entry{"aten::binary_cross_entropy_backward", {Kind::kPointwise, 0, 4, ~0U, 4}},
    Entry{"aten::log_sigmoid_forward", {Kind::kPointwise, 0, 8}},
    Entry{"aten::log_sigmoid_backward", {Kind::kPointwise, 0, 8}},
    Entry{"aten::nll_loss2d_backward", {Kind::kSamples, 0, 2, 0b111}},
    Entry{"aten::_fft_c2c", {Kind::kOthers, 1, 1}},
    Entry{"aten::_fft_r2c", {Kind::kOthers, 1, 1}},
    Entry{"aten::_fft_c2r", {Kind::kOthers, 1, 4}},
    Entry{"aten::index", {Kind::kIndex, 0, 4}},
    Entry{"aten::take", {Kind::kPlaces, 1, 4}},
    Entry{"aten::index_fill_", {Kind::kOthers, 1, 2, 0b1}},
    Entry{"aten::searchsorted", {Kind::kLeading, 1, 20}},
    Entry{"aten::searchsorted", {Kind::kLeading, 0, 20, 0b10}},
    Entry{"aten::bucketize", {Kind::kLeading, 0, 20, 0b1}},
    Entry{"aten::flip", {Kind::kOthers, 1, 1}},
    Entry{"aten::kthvalue", {Kind::kOthers, 2, 10}},
    Entry{"aten::mode", {Kind::kOthers, 1, 40}},
    Entry{"aten::median", {Kind::kOthers, 1, 10}},
    Entry{"aten::nanmedian", {Kind::kOthers, 1, 10}},
    Entry{"aten::_logcumsumexp", {Kind::kOthers, 1, 20}},
    Entry{"aten::_cholesky_solve_helper", {Kind::kLeading, 2, 30}},
    Entry{"aten::cholesky", {Kind::kLeading, 2, 30}},
    Entry{"aten::cholesky_inverse", {Kind::kLeading, 2, 30}},
    Entry{"aten::geqrf", {Kind::kLeading, 2, 30}},
    Entry{"aten::linalg_eig", {Kind::kLeading, 2, 300}},
    Entry{"aten::linalg_matrix_exp", {Kind::kLeading, 2, 5}},  // a call takes long by itself
    Entry{"aten::linalg_solve_triangular", {Kind::kLeading, 2, 30}},
    Entry{"aten::im2col", {Kind::kLeading, 3, 4}},
    Entry{"aten::col2im", {Kind::kLeading, 2, 4}},
    Entry{"aten::_adaptive_avg_pool2d", {Kind::kLeading, 2, 2}},
    Entry{"aten::_adaptive_avg_pool2d_backward", {Kind::kLeading, 2, 2}},
    Entry{"aten::_adaptive_avg_pool3d", {Kind::kLeading, 3, 2}},
    Entry{"aten::_adaptive_avg_pool3d_backward", {Kind::kLeading, 3, 2}},
    Entry{"aten::grid_sampler_2d", {Kind::kGrid, 1, 1}},
    Entry{"aten::grid_sampler_2d", {Kind::kLeading, 3, 20}},
    Entry{"aten::grid_sampler_3d", {Kind::kGrid, 1, 2}},
    Entry{"aten::grid_sampler_3d", {Kind::kLeading, 4, 40}},
    Entry{"aten::grid_sampler_2d_backward", {Kind::kLeading, 3, 40}},
    Entry{"aten::grid_sampler_3d_backward", {Kind::kLeading, 4, 80}},
    Entry{"aten::max_pool3d_with_indices", {Kind::kLeading, 3, 4}},
    Entry{"aten::max_pool3d_with_indices_backward", {Kind::kLeading, 3, 4}},
    Entry{"aten::max_unpool2d", {Kind::kLeading, 2, 1}},
    Entry{"aten::max_unpool3d", {Kind::kLeading, 3, 1}},
    Entry{"aten::reflection_pad2d", {Kind::kBatch, 2, 0.5}},
    Entry{"aten::reflection_pad2d_backward", {Kind::kBatch, 2, 3}},
    Entry{"aten::replication_pad2d_backward", {Kind::kBatch, 2, 3}},
    Entry{"aten::replication_pad3d_backward", {Kind::kBatch, 2, 3}},
    Entry{"aten::fractional_max_pool2d", {Kind::kBatch, 2, 8}},
    Entry{"aten::fractional_max_pool3d", {Kind::kBatch, 2, 8}},
    Entry{"aten::fractional_max_pool3d_backward", {Kind::kBatch, 2, 4}},
    Entry{"aten::_scaled_mm", {Kind::kRows, 0, 1, 0b101}},
    Entry{"aten::_scaled_mm_v2", {Kind::kRows, 0, 1, 0b1}},
    Entry{"aten::_cdist_forward", {Kind::kLeading, 2, 20}},
    Entry{"aten::_cdist_forward", {Kind::kRows, 0, 20, 0b1}},
    Entry{"aten::_cdist_backward", {Kind::kLeading, 2, 20}},
    Entry{"aten::_cdist_backward", {Kind::kRows, 0, 20, 0b10011}},
};

bool cuts_pointwise(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return op.hasTag(at::Tag::pointwise) &&
         std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
           return result.type()->kind() == c10::TypeKind::TensorType;
         });
}

/// The dimensions that a number or a list of numbers names, as bits; nothing for all or none.
std::optional<std::uint64_t> named_dims(const c10::IValue& value, std::int64_t dims) {
  std::uint64_t bits = 0;
  const auto name = [&](std::int64_t dim) {
    const auto wrapped = wrapped_dim(dim, dims);
    if (wrapped) bits |= std::uint64_t{1} << *wrapped;
    return wrapped.has_value();
  };
  if (value.isInt()) {
    if (!name(value.toInt())) return std::nullopt;
  } else if (value.isIntList()) {
    for (const std::int64_t dim : value.toIntList()) {
      if (!name(dim)) return std::nullopt;
    }
  }
  return bits == 0 ? std::nullopt : std::optional(bits);
}

/// Where a result has dimension `dim` of the first tensor, whose `along` it may lack.
std::optional<std::int8_t> dim_of_result(c10::IntArrayRef sizes, const at::Tensor& first,
                                         std::int64_t dim, std::uint64_t along) {
  const auto dims = static_cast<std::int64_t>(sizes.size());
  const bool reduced = along != 0 && dims != first.dim();
  if (reduced && first.dim() - dims != std::popcount(along)) return std::nullopt;
  const int before = std::popcount(along & ((std::uint64_t{1} << dim) - 1));
  const std::int64_t own = reduced ? dim - before : dim;
  if (own >= dims || sizes[own] != first.size(dim)) return std::nullopt;
  return static_cast<std::int8_t>(own);
}

/// Cuts dimension `dim` of the first tensor, and of all that have as many. Others are whole if they
/// have no more dimensions than an item. `along`: bits of the dimensions that a result may lack,
/// whether it is new or given.
std::optional<DeferredSplit> cut(const SplitRule& rule, const Shapes& shapes,
                                 const std::vector<bool>& writes, const ResultSizes& results,
                                 std::int64_t dim, std::uint64_t along) {
  const at::Tensor& first = *shapes.first(rule);
  DeferredSplit split;
  split.items = first.size(dim);
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const at::Tensor& tensor = shapes.tensors[i];
    if (writes[i] && tensor.defined()) {
      const auto own = dim_of_result(tensor.sizes(), first, dim, along);
      if (!own) return std::nullopt;
      split.arguments.push_back(*own);
      continue;
    }
    const bool cuts = Shapes::is_cut(rule, i);
    const std::int64_t shared = !cuts ? 1 : rule.kind == Kind::kLeading ? rule.which : 0;
    const bool alike = cuts && tensor.defined() && tensor.dim() == first.dim();
    const bool fits =
        alike ? tensor.size(dim) == split.items : !tensor.defined() || tensor.dim() <= shared;
    if (!fits) return std::nullopt;
    split.arguments.push_back(alike ? static_cast<std::int8_t>(dim) : DeferredSplit::kWhole);
  }
  for (const auto& sizes : results) {
    const auto own = sizes ? dim_of_result(*sizes, first, dim, along) : DeferredSplit::kWhole;
    if (!own) return std::nullopt;
    split.results.push_back(*own);
  }
  return split;
}

std::optional<DeferredSplit> cut_along(const SplitRule& rule, const Shapes& shapes,
                                       Arguments arguments, const std::vector<bool>& writes,
                                       const ResultSizes& results) {
  const at::Tensor& first = *shapes.first(rule);
  if (rule.kind == Kind::kLeading) {
    // Kernels that count matrices or planes want those of a block to lie at equal distances.
    std::int64_t dim = 0;
    while (dim < first.dim() - rule.which && first.size(dim) == 1) ++dim;
    if (dim >= first.dim() - rule.which || (dim > 0 && shapes.has_channels_last())) {
      return std::nullopt;
    }
    return cut(rule, shapes, writes, results, dim, 0);
  }
  const auto which = static_cast<std::size_t>(rule.which);
  if (which >= arguments.size()) return std::nullopt;  // an overload without dimensions
  const auto named = named_dims(arguments[which], first.dim());
  if (!named) return std::nullopt;
  // The outermost one that has enough items lies best in memory, otherwise the longest.
  std::int64_t best = -1;
  for (std::int64_t dim = 0; dim < first.dim(); ++dim) {
    if ((*named >> dim & 1) != 0) continue;
    if (best < 0 || first.size(dim) > first.size(best)) best = dim;
    if (first.size(best) >= kEnoughItems) break;
  }
  if (best < 0) return std::nullopt;
  return cut(rule, shapes, writes, results, best, *named);
}

/// Of the first result, whether it is new or given.
std::optional<c10::IntArrayRef> sizes_of_result(const Shapes& shapes,
                                                const std::vector<bool>& writes,
                                                const ResultSizes& results) {
  if (!results.empty()) return results[0];
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    if (writes[i] && shapes.tensors[i].defined()) return shapes.tensors[i].sizes();
  }
  return std::nullopt;
}

std::optional<DeferredSplit> cut_pointwise(const Shapes& shapes, const std::vector<bool>& writes,
                                           const ResultSizes& results) {
  const auto found = sizes_of_result(shapes, writes, results);
  if (!found) return std::nullopt;
  const c10::IntArrayRef sizes = *found;
  std::int64_t dim = 0;
  const auto dims = static_cast<std::int64_t>(sizes.size());
  while (dim + 1 < dims && sizes[dim] == 1) ++dim;
  if (dims == 0) return std::nullopt;
  DeferredSplit split;
  split.items = sizes[dim];
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const at::Tensor& tensor = shapes.tensors[i];
    if (writes[i] && tensor.defined() && tensor.sizes() != sizes) return std::nullopt;
    const std::int64_t own = tensor.defined() ? dim - (dims - tensor.dim()) : -1;
    const bool cuts = own >= 0 && tensor.size(own) == split.items && split.items > 1;
    if (!cuts && own >= 0 && tensor.size(own) != 1) return std::nullopt;
    split.arguments.push_back(cuts ? static_cast<std::int8_t>(own) : DeferredSplit::kWhole);
  }
  for (const auto& result : results) {
    if (result != sizes) return std::nullopt;
    split.results.push_back(static_cast<std::int8_t>(dim));
  }
  return split;
}

/// Results that have a place for each of those of one argument; all others are read anywhere.
std::optional<DeferredSplit> cut_places(const SplitRule& rule, const Shapes& shapes,
                                        const ResultSizes& results) {
  const auto which = static_cast<std::size_t>(rule.which);
  const at::Tensor& places = shapes.tensors[which];
  if (!places.defined()) return std::nullopt;
  const c10::IntArrayRef sizes = places.sizes();
  const auto dims = static_cast<std::int64_t>(sizes.size());
  std::int64_t dim = 0;
  while (dim + 1 < dims && sizes[dim] == 1) ++dim;
  if (dims == 0) return std::nullopt;
  DeferredSplit split;
  split.items = sizes[dim];
  split.arguments.assign(shapes.tensors.size(), DeferredSplit::kWhole);
  split.arguments[which] = static_cast<std::int8_t>(dim);
  for (const auto& result : results) {
    if (result != sizes) return std::nullopt;
    split.results.push_back(static_cast<std::int8_t>(dim));
  }
  return split;
}

std::optional<DeferredSplit> cut_samples(const SplitRule& rule, const Shapes& shapes,
                                         const ResultSizes& results) {
  DeferredSplit split;
  split.items = 0;
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const at::Tensor& tensor = shapes.tensors[i];
    const bool cuts = tensor.defined() && tensor.dim() > 0 && Shapes::is_cut(rule, i);
    split.arguments.push_back(cuts ? 0 : DeferredSplit::kWhole);
    if (!cuts) continue;
    if (split.items != 0 && tensor.size(0) != split.items) return std::nullopt;
    split.items = tensor.size(0);
  }
  for (const auto& sizes : results) {
    if (sizes && (sizes->empty() || (*sizes)[0] != split.items)) return std::nullopt;
    split.results.push_back(sizes ? 0 : DeferredSplit::kWhole);
  }
  return split;
}

std::int64_t most_elements(const Shapes& shapes, const ResultSizes& results) {
  std::int64_t most = 0;
  for (const at::Tensor& tensor : shapes.tensors) {
    if (tensor.defined()) most = std::max(most, tensor.numel());
  }
  for (const auto& sizes : results) {
    if (sizes) most = std::max(most, c10::multiply_integers(*sizes));
  }
  return most;
}

/// Whether two blocks might write the same element (of an out= that is expanded, say).
bool may_collide(const Shapes& shapes, const std::vector<bool>& writes) {
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const at::Tensor& tensor = shapes.tensors[i];
    if (writes[i] && tensor.defined() && may_overlap_itself(tensor.sizes(), tensor.strides())) {
      return true;
    }
  }
  return false;
}

/// Whether every block would write a tensor (an out=) that none of them sees a part of.
bool writes_whole(const DeferredSplit& split, const Shapes& shapes,
                  const std::vector<bool>& writes) {
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const bool whole = split.arguments[i] == DeferredSplit::kWhole;
    if (writes[i] && shapes.tensors[i].defined() && whole) return true;
  }
  return false;
}

/// Whether a kernel divides by how many elements it sees, which those of a block are not all of.
bool divides_by_elements(const SplitRule& rule, Arguments arguments) {
  const auto reduction = static_cast<std::size_t>(rule.reduction);
  return rule.reduction >= 0 && reduction < arguments.size() &&
         arguments[reduction].toInt() == at::Reduction::Mean;
}

std::optional<DeferredSplit> cut_by(const SplitRule& rule, const Shapes& shapes,
                                    Arguments arguments, const std::vector<bool>& writes,
                                    const ResultSizes& results) {
  switch (rule.kind) {
    case Kind::kPointwise:
      return cut_pointwise(shapes, writes, results);
    case Kind::kPlaces:
      return cut_places(rule, shapes, results);
    case Kind::kIndex:
      return cut_index(arguments, results);
    case Kind::kSamples:
      return cut_samples(rule, shapes, results);
    case Kind::kBatch:
      return cut_batch(rule, shapes, results);
    case Kind::kRows:
      return cut_rows(rule, shapes, arguments, results);
    case Kind::kGrid:
      return cut_grid(rule, shapes, results);
    case Kind::kLeading:
    case Kind::kOthers:
      break;
  }
  return cut_along(rule, shapes, arguments, writes, results);
}

}  // namespace

std::vector<SplitRule> split_rules(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  std::vector<SplitRule> rules;
  for (const Entry& entry : kTable) {
    if (entry.name == name) rules.push_back(entry.rule);
  }
  // Kernels that nobody has named cost a few additions an element.
  if (rules.empty() && cuts_pointwise(op)) rules.push_back({Kind::kPointwise, 0, 4});
  return rules;
}

std::optional<DeferredSplit> split_of(std::span<const SplitRule> rules, Arguments arguments,
                                      const std::vector<bool>& writes, const ResultSizes& results) {
  const Shapes shapes(arguments);
  const std::int64_t elements = most_elements(shapes, results);
  for (const SplitRule& rule : rules) {
    const bool indexes = rule.kind == Kind::kIndex, rows = rule.kind == Kind::kRows;
    if ((shapes.listed != indexes && !rows) || shapes.first(rule) == nullptr) continue;
    if (divides_by_elements(rule, arguments)) continue;
    // Of what is indexed only as much is read as is written.
    const bool reads_places = indexes || rule.kind == Kind::kPlaces;
    const std::int64_t worked =
        reads_places ? most_elements(Shapes(Arguments()), results) : elements;
    if (block_length(worked, rule.cost) >= worked || may_collide(shapes, writes)) continue;
    auto split = cut_by(rule, shapes, arguments, writes, results);
    if (!split || split->items < 2 || writes_whole(*split, shapes, writes)) continue;
    const double work = rule.cost * static_cast<double>(worked);
    split->block = call_length(split->items, work / static_cast<double>(split->items));
    if (rows) split->block = std::max(split->block, kFewestRowsOfProduct);
    if (split->blocks() > 1) return split;
  }
  return std::nullopt;
}

}  // namespace loom::ops
