// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How the kernel of a deferred operator (deferred.h) is cut into blocks: each is a call of the
// kernel on slices of the operands. Operators that ATen tags as pointwise are cut without being
// named; of others a table says which dimensions a kernel works along, and any other one may be
// cut. What fits no rule is one block. Blocks depend on shapes only. Thread: any.

#include "loom/base/ceil_div.h"
#include "loom/base/export.h"
#include "loom/ops/meta/rule.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace loom::ops {

/// Which dimensions an operator's kernel works along.
struct SplitRule {
  enum class Kind {
    kPointwise,  ///< none: operands broadcast to the first result
    kLeading,    ///< the last `which` ones
    kOthers,     ///< those that argument number `which` names
    kPlaces,     ///< none of argument number `which`, to any place of the others
    kIndex,      ///< those of argument 0 that the list of indices in argument 1 goes along
    kSamples,    ///< all but the first one of what is cut, which the results have, too
    kBatch,      ///< all but the first `which` ones, which all tensors have in common
    kRows,       ///< all but the first one of the arguments in `cut`; others are whole
    kGrid,       ///< all but those where argument `which`, a grid, has places to sample at
  };
  Kind kind = Kind::kPointwise;
  int which = 0;
  double cost = 1;  ///< of an element of the largest operand, in the unit of Pointwise (split.h)
  std::uint32_t cut = ~0U;  ///< bits of the arguments that are cut; others are whole vectors
  int reduction = -1;       ///< the argument that says how a loss is reduced, if its gradient is
                            ///< divided by the number of elements where that is the mean
};

/// The rules of an operator, of which the first that fits a call counts; none if nobody knows how
/// to cut its kernel.
[[nodiscard]] LOOM_API std::vector<SplitRule> split_rules(const c10::OperatorHandle& op);

/// Items [0, items) cut into blocks of `block`; an item is one place along a dimension.
struct DeferredSplit {
  static constexpr std::int8_t kWhole = -1;  ///< every block sees the whole tensor

  std::int64_t items = 1, block = 1;
  std::vector<std::int8_t> arguments;  ///< the cut dimension of each argument; of a list: of those
                                       ///< of its tensors that have all items
  std::vector<std::int8_t> results;    ///< that of each new result

  [[nodiscard]] std::int64_t blocks() const noexcept { return ceil_div(items, block); }
};

/// Those of each new result; nothing for one that is absent.
using ResultSizes = std::vector<std::optional<c10::IntArrayRef>>;

/// How this call is cut; nothing if it is one block. `writes`: which arguments are written.
[[nodiscard]] LOOM_API std::optional<DeferredSplit> split_of(std::span<const SplitRule> rules,
                                                             Arguments arguments,
                                                             const std::vector<bool>& writes,
                                                             const ResultSizes& results);

}  // namespace loom::ops
