// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a split of a deferred operator looks at, and the ways to cut that fit few operators: batches
// of operands unlike each other, products, places of a grid, and indexing. Thread: any.

#include "loom/ops/cuts/deferred_split.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

namespace loom::ops {

// Items that are enough blocks to share, whatever there are of other dimensions.
inline constexpr std::int64_t kEnoughItems = 16;
// Rows of a product's block: the other factor is converted for each block, once for all its rows.
inline constexpr std::int64_t kFewestRowsOfProduct = 64;

/// The tensors among the arguments of a call.
struct Shapes {
  explicit Shapes(Arguments arguments) {
    for (const c10::IValue& argument : arguments) {
      listed = listed || argument.isTensorList() || argument.isOptionalTensorList();
      at::Tensor tensor = argument.isTensor() ? argument.toTensor() : at::Tensor();
      tensors.push_back(std::move(tensor));
    }
  }
  /// The first one that a rule cuts.
  [[nodiscard]] const at::Tensor* first(const SplitRule& rule) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].defined() && is_cut(rule, i)) return &tensors[i];
    }
    return nullptr;
  }
  [[nodiscard]] static bool is_cut(const SplitRule& rule, std::size_t argument) {
    return argument >= 32 || (rule.cut >> argument & 1) != 0;
  }

  /// Then kernels may give the part of a result that they see another order, as if it were all.
  [[nodiscard]] bool has_channels_last() const {
    return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
      return tensor.defined() && tensor.suggest_memory_format() != c10::MemoryFormat::Contiguous;
    });
  }

  std::vector<at::Tensor> tensors;  // undefined for arguments of other kinds
  bool listed = false;
};

/// The outermost of the first `which` dimensions that has more than one item, in all tensors.
[[nodiscard]] std::optional<DeferredSplit> cut_batch(const SplitRule& rule, const Shapes& shapes,
                                                     const ResultSizes& results);

/// Products: rows of the result are made of those of some arguments, and of all of the others.
[[nodiscard]] std::optional<DeferredSplit> cut_rows(const SplitRule& rule, const Shapes& shapes,
                                                    Arguments arguments,
                                                    const ResultSizes& results);

/// grid_sample of few images: rows of the result are places of rows of the grid.
[[nodiscard]] std::optional<DeferredSplit> cut_grid(const SplitRule& rule, const Shapes& shapes,
                                                    const ResultSizes& results);

/// index(self, indices): the result is made of places of the indices and, where those come first,
/// of the dimensions of self before them.
[[nodiscard]] std::optional<DeferredSplit> cut_index(Arguments arguments,
                                                     const ResultSizes& results);

}  // namespace loom::ops
