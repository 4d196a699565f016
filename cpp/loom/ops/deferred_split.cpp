// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/deferred_split.h"

#include "loom/ops/self_overlap.h"
#include "loom/ops/split.h"

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
    Entry{"aten::_fft_c2c", {Kind::kOthers, 1, 8}},
    Entry{"aten::_fft_r2c", {Kind::kOthers, 1, 8}},
    Entry{"aten::_fft_c2r", {Kind::kOthers, 1, 8}},
    Entry{"aten::flip", {Kind::kOthers, 1, 1}},
    Entry{"aten::roll", {Kind::kOthers, 2, 1}},
    Entry{"aten::kthvalue", {Kind::kOthers, 2, 10}},
    Entry{"aten::mode", {Kind::kOthers, 1, 40}},
    Entry{"aten::median", {Kind::kOthers, 1, 10}},
    Entry{"aten::nanmedian", {Kind::kOthers, 1, 10}},
    Entry{"aten::_logcumsumexp", {Kind::kOthers, 1, 20}},
    Entry{"aten::_cholesky_solve_helper", {Kind::kLeading, 2, 30}},
    Entry{"aten::cholesky", {Kind::kLeading, 2, 30}},
    Entry{"aten::cholesky_inverse", {Kind::kLeading, 2, 30}},
    Entry{"aten::geqrf", {Kind::kLeading, 2, 30}},
    Entry{"aten::ormqr", {Kind::kLeading, 2, 30}},
    Entry{"aten::linalg_eig", {Kind::kLeading, 2, 300}},
    Entry{"aten::linalg_householder_product", {Kind::kLeading, 2, 30}},
    Entry{"aten::linalg_matrix_exp", {Kind::kLeading, 2, 100}},
    Entry{"aten::linalg_solve_triangular", {Kind::kLeading, 2, 30}},
    Entry{"aten::im2col", {Kind::kLeading, 3, 4}},
    Entry{"aten::col2im", {Kind::kLeading, 2, 4}},
    Entry{"aten::_adaptive_avg_pool2d", {Kind::kLeading, 2, 2}},
    Entry{"aten::_adaptive_avg_pool2d_backward", {Kind::kLeading, 2, 2}},
    Entry{"aten::_adaptive_avg_pool3d", {Kind::kLeading, 3, 2}},
    Entry{"aten::_adaptive_avg_pool3d_backward", {Kind::kLeading, 3, 2}},
    Entry{"aten::grid_sampler_2d", {Kind::kLeading, 3, 20}},
    Entry{"aten::grid_sampler_3d", {Kind::kLeading, 4, 40}},
    Entry{"aten::grid_sampler_2d_backward", {Kind::kLeading, 3, 40}},
    Entry{"aten::grid_sampler_3d_backward", {Kind::kLeading, 4, 80}},
    Entry{"aten::_cdist_forward", {Kind::kLeading, 2, 20}},
    Entry{"aten::pixel_unshuffle", {Kind::kLeading, 3, 1}},
    Entry{"aten::channel_shuffle", {Kind::kLeading, 3, 1}},
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

struct Shapes {
  explicit Shapes(Arguments arguments) {
    for (const c10::IValue& argument : arguments) {
      listed = listed || argument.isTensorList() || argument.isOptionalTensorList();
      at::Tensor tensor = argument.isTensor() ? argument.toTensor() : at::Tensor();
      tensors.push_back(std::move(tensor));
    }
  }
  [[nodiscard]] const at::Tensor& first() const {
    static const at::Tensor none;
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [](const at::Tensor& each) { return each.defined(); });
    return found == tensors.end() ? none : *found;
  }

  std::vector<at::Tensor> tensors;  // undefined for arguments of other kinds
  bool listed = false;
};

/// Cuts dimension `dim` of the first tensor, and of all that have as many. Others are whole if they
/// have at most `shared` dimensions. `along`: bits of the dimensions that a result may lack.
std::optional<DeferredSplit> cut(const Shapes& shapes, const ResultSizes& results, std::int64_t dim,
                                 std::uint64_t along, std::int64_t shared) {
  const at::Tensor& first = shapes.first();
  DeferredSplit split;
  split.items = first.size(dim);
  for (const at::Tensor& tensor : shapes.tensors) {
    const bool alike = tensor.defined() && tensor.dim() == first.dim();
    const bool fits =
        alike ? tensor.size(dim) == split.items : !tensor.defined() || tensor.dim() <= shared;
    if (!fits) return std::nullopt;
    split.arguments.push_back(alike ? static_cast<std::int8_t>(dim) : DeferredSplit::kWhole);
  }
  const int before = std::popcount(along & ((std::uint64_t{1} << dim) - 1));
  for (const auto& sizes : results) {
    if (!sizes) {
      split.results.push_back(DeferredSplit::kWhole);
      continue;
    }
    const auto dims = static_cast<std::int64_t>(sizes->size());
    const bool reduced = along != 0 && dims != first.dim();
    if (reduced && first.dim() - dims != std::popcount(along)) return std::nullopt;
    const std::int64_t own = reduced ? dim - before : dim;
    if (own >= dims || (*sizes)[own] != split.items) return std::nullopt;
    split.results.push_back(static_cast<std::int8_t>(own));
  }
  return split;
}

std::optional<DeferredSplit> cut_along(const SplitRule& rule, const Shapes& shapes,
                                       Arguments arguments, const ResultSizes& results) {
  const at::Tensor& first = shapes.first();
  if (rule.kind == Kind::kLeading) {
    // Kernels that count matrices or planes want those of a block to lie at equal distances.
    std::int64_t dim = 0;
    while (dim < first.dim() - rule.which && first.size(dim) == 1) ++dim;
    if (dim >= first.dim() - rule.which) return std::nullopt;
    return cut(shapes, results, dim, 0, rule.which);
  }
  const auto named = named_dims(arguments[static_cast<std::size_t>(rule.which)], first.dim());
  if (!named) return std::nullopt;
  // The outermost one that has enough items lies best in memory, otherwise the longest.
  constexpr std::int64_t kEnough = 16;
  std::int64_t best = -1;
  for (std::int64_t dim = 0; dim < first.dim(); ++dim) {
    if ((*named >> dim & 1) != 0) continue;
    if (best < 0 || first.size(dim) > first.size(best)) best = dim;
    if (first.size(best) >= kEnough) break;
  }
  if (best < 0) return std::nullopt;
  return cut(shapes, results, best, *named, 0);
}

std::optional<DeferredSplit> cut_pointwise(const Shapes& shapes, const ResultSizes& results) {
  if (results.empty() || !results[0]) return std::nullopt;
  const c10::IntArrayRef sizes = *results[0];
  std::int64_t dim = 0;
  const auto dims = static_cast<std::int64_t>(sizes.size());
  while (dim + 1 < dims && sizes[dim] == 1) ++dim;
  if (dims == 0) return std::nullopt;
  DeferredSplit split;
  split.items = sizes[dim];
  for (const at::Tensor& tensor : shapes.tensors) {
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

}  // namespace

std::optional<SplitRule> split_rule(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const auto found =
      std::find_if(kTable.begin(), kTable.end(), [&](const Entry& e) { return e.name == name; });
  if (found != kTable.end()) return found->rule;
  // Kernels that nobody has named cost a few additions an element.
  if (cuts_pointwise(op)) return SplitRule{Kind::kPointwise, 0, 4};
  return std::nullopt;
}

std::optional<DeferredSplit> split_of(const SplitRule& rule, Arguments arguments,
                                      const std::vector<bool>& writes, const ResultSizes& results) {
  const Shapes shapes(arguments);
  if (shapes.listed || !shapes.first().defined()) return std::nullopt;
  const std::int64_t elements = most_elements(shapes, results);
  const double work = rule.cost * static_cast<double>(elements);
  if (block_length(elements, rule.cost) >= elements || may_collide(shapes, writes)) {
    return std::nullopt;
  }
  auto split = rule.kind == Kind::kPointwise ? cut_pointwise(shapes, results)
                                             : cut_along(rule, shapes, arguments, results);
  if (!split || split->items < 2) return std::nullopt;
  split->block = block_length(split->items, work / static_cast<double>(split->items));
  if (split->blocks() < 2) return std::nullopt;
  return split;
}

}  // namespace loom::ops
