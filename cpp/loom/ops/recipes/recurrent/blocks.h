// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How the steps of a recurrence are shared between cores: by samples of the batch, which need
// nothing of each other, if there are enough of them and the weights fit in a core's cache or a
// step is too little to share; else by units, each core with its part of the weights, and a grid
// per step. Two directions that would have two blocks each at most are a block each instead, and
// wait for each other only once. From shapes only. Thread: the worker that runs the command.

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/launch.h"

#include <algorithm>
#include <cstdint>

namespace loom::ops::recurrent {

/// `groups` are what units come in; a block has a range of them.
struct Recurrence {
  std::int64_t steps, batch, groups;
  double step_cost;           ///< multiply-adds of a step
  std::int64_t weight_bytes;  ///< what a step reads of the weights
};

/// What a block has: units of a step, or samples of all steps.
struct RecurrenceCut {
  bool by_units;
  std::int64_t part, blocks;  ///< groups or samples of a block, and how many blocks there are
};

[[nodiscard]] inline RecurrenceCut cut_recurrence(const Recurrence& r) {
  // Weights that stay in a core's L2 (1 MB) beside what passes through it, and the part of larger
  // ones that a block has.
  constexpr std::int64_t kNearBytes = 3 << 18, kBlockBytes = 1 << 19;
  // A block's multiply-adds: worth handing over (20 to 40 us).
  constexpr double kBlockCost = 2e6;
  // Fewer rows than that read the weights more than they compute with them; a small batch has to.
  const std::int64_t least_rows = r.batch >= 32 ? 8 : 4;
  const auto across = static_cast<std::int64_t>(
      std::max(static_cast<double>(r.weight_bytes / kBlockBytes), r.step_cost / kBlockCost));
  const bool by_samples = r.batch >= 16 && r.weight_bytes <= kNearBytes;
  if (across >= 2 && r.groups >= 2 && !by_samples) {
    const std::int64_t part = ceil_div(r.groups, std::min(across, r.groups));
    return {true, part, ceil_div(r.groups, part)};
  }
  const double cost = r.step_cost * static_cast<double>(r.steps);
  const std::int64_t most = std::max<std::int64_t>(r.batch / least_rows, 1);
  const std::int64_t part = ceil_div(
      r.batch, std::clamp<std::int64_t>(static_cast<std::int64_t>(cost / kBlockCost), 1, most));
  return {false, part, ceil_div(r.batch, part)};
}

/// Calls step(index, first row, end row, first group, end group) for all of them, in order of the
/// index for each row.
template <class Step>
void run_recurrence(Grid& grid, const Recurrence& r, const Step& step) {
  const RecurrenceCut cut = cut_recurrence(r);
  if (cut.by_units) {
    for (std::int64_t i = 0; i < r.steps; ++i) {
      grid.run_by_any(cut.blocks, [&](std::int64_t block) {
        step(i, 0, r.batch, block * cut.part, std::min((block + 1) * cut.part, r.groups));
      });
    }
    return;
  }
  grid.run_by_any(cut.blocks, [&](std::int64_t block) {
    for (std::int64_t i = 0; i < r.steps; ++i) {
      step(i, block * cut.part, std::min((block + 1) * cut.part, r.batch), 0, r.groups);
    }
  });
}

}  // namespace loom::ops::recurrent
