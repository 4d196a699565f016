// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How a kernel is cut into blocks. An operator says which dimension of each operand a block is a
// range of; the number of blocks follows from shapes only, never from the number of cores, so that
// results do not depend on it. Thread: the worker that runs the command.

#include "loom/base/ceil_div.h"
#include "loom/device/cores.h"
#include "loom/ops/launch/tensor_ref.h"

#include <array>
#include <cstdint>
#include <span>

namespace loom::ops {

/// Items [0, items) cut into blocks of `block`; modes[i] says what a block is of operand i.
struct SlicePlan {
  static constexpr int kMaxOperands = 10;
  static constexpr std::int8_t kWhole = -1;  ///< every block sees the whole operand
  static constexpr std::int8_t kFlat = -2;   ///< a range of elements in memory order
  static constexpr std::int8_t kRows = -3;   ///< the leading dimensions as one, a range of that

  std::int64_t items = 1, block = 1;
  std::int8_t leading = 0;  ///< how many dimensions kRows makes one of
  RunBy by = RunBy::kDevice;
  std::array<std::int8_t, kMaxOperands> modes{};

  [[nodiscard]] std::int64_t blocks() const noexcept {
    return items <= block ? 1 : ceil_div(items, block);
  }
  /// The part of `operand` (number `index`) that the block starting at `begin` sees.
  [[nodiscard]] at::Tensor slice(const TensorRef& operand, int index, std::int64_t begin) const;
};

using Operands = std::span<const TensorRef* const>;

/// One block: the kernel sees all operands whole.
struct Whole {
  [[nodiscard]] SlicePlan plan(Operands operands) const noexcept;
};

/// Every operand broadcasts to the first. `cost` is the work of one element relative to an
/// addition of floats (about 0.3 ns when memory is near).
struct Pointwise {
  double cost = 1;
  [[nodiscard]] SlicePlan plan(Operands operands) const noexcept;
};

/// Operand i is cut along dims[i] (kWhole: not at all); all cut dimensions have the same length.
/// `cost` is that of one item along it, in the unit of Pointwise; `block`, if not 0, is the number
/// of items of a block.
struct Along {
  std::array<std::int8_t, SlicePlan::kMaxOperands> dims{};
  double cost = 1;
  std::int64_t block = 0;
  [[nodiscard]] SlicePlan plan(Operands operands) const noexcept;
};

/// The first `leading` dimensions of operand i become one, and a block is a range of that, if bit i
/// of `cut` is set; other operands are whole. The kernel sees the operands with their leading
/// dimensions flattened even when there is one block. Requires: the cut operands are contiguous and
/// agree in their leading sizes. `cost` is that of one row, in the unit of Pointwise. Kernels that
/// only read and write the operands' memory may be run by kAny.
struct Rows {
  std::int8_t leading = 1;
  std::uint32_t cut = 1;
  double cost = 1;
  RunBy by = RunBy::kDevice;
  [[nodiscard]] SlicePlan plan(Operands operands) const noexcept;
};

/// Items of one block such that a block costs some tens of microseconds, and there are enough
/// blocks to share but not so many that cutting costs.
[[nodiscard]] std::int64_t block_length(std::int64_t items, double cost) noexcept;

}  // namespace loom::ops
