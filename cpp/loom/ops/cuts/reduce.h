// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How reductions are cut. Where a dimension that is kept is long enough, blocks are ranges of it
// and write their own part of the result. Else, if the reduction is one that may be done in parts,
// blocks are ranges of a reduced dimension, whose partial results are combined in their order.
// Which of the two, and where, depends on shapes only. Thread: any.

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/launch.h"

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <cstdint>
#include <optional>

namespace loom::ops {

/// Which dimensions of the input are reduced, as a bit mask.
struct Reduced {
  std::uint64_t mask = 0;
  bool keepdim = false;

  [[nodiscard]] bool reduces(std::int64_t dim) const noexcept { return (mask >> dim & 1) != 0; }
  /// As a list, of an input of so many dimensions.
  [[nodiscard]] at::DimVector dims(std::int64_t count) const {
    at::DimVector list;
    for (std::int64_t d = 0; d < count; ++d) {
      if (reduces(d)) list.push_back(d);
    }
    return list;
  }
};

/// How long what is reduced is, for a guess of what ATen's loops cost.
struct ReducedRuns {
  std::int64_t reduced = 1;        ///< elements of which one becomes
  bool innermost_is_kept = false;  ///< elements side by side in memory become several
  bool are_short = false;          ///< as those are, or the rows that become one each
};
[[nodiscard]] ReducedRuns reduced_runs(const at::Tensor& input, Reduced reduced);

/// Absent or empty `dims` means all.
[[nodiscard]] Reduced reduced_dims(const at::Tensor& input, c10::OptionalIntArrayRef dims,
                                   bool keepdim);
[[nodiscard]] Reduced reduced_dim(const at::Tensor& input, std::int64_t dim, bool keepdim);

/// A cut along a kept dimension, for `outputs` results and one input. A plan of one block if there
/// is no dimension that is worth it. `cost` is that of one element.
[[nodiscard]] Along cut_kept(const at::Tensor& input, Reduced reduced, int outputs, double cost);

/// A cut along a reduced dimension.
struct Chunks {
  static constexpr std::int64_t kFlat = -1;  ///< ranges of memory: everything is reduced

  std::int64_t dim = kFlat;
  std::int64_t items = 0, block = 1;

  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(items, block); }
  [[nodiscard]] at::Tensor part(const TensorRef& input, std::int64_t index) const;
};

/// Nothing if the input is small, or a kept dimension is the better one to cut.
[[nodiscard]] std::optional<Chunks> cut_reduced(const at::Tensor& input, Reduced reduced,
                                                double cost);

}  // namespace loom::ops
