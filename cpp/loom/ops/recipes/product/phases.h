// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums of a transposed convolution with a stride of s: every s-th element of a row of the images
// gets the same taps. They are summed up in s x s planes, the phases, in each of which neighbours
// of the gradient have neighbours, and put together at the end.
// Numbers are float32. Thread: any; what Planes has is its thread's until the next one is made.

#include "loom/base/blocks.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/product/columns.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::ops {

/// Blocks that are enough for the cores to share.
inline constexpr std::int64_t kFewBlocks = 8;

/// An axis of the images: element q * stride + p of it is element q of phase p.
struct PhaseAxis {
  explicit PhaseAxis(const WindowAxis& axis);
  std::int64_t stride, size;
  std::int64_t rows;                 ///< elements of the longest phase
  std::vector<std::int64_t> phases;  ///< of each tap
  std::vector<std::int64_t> shifts;  ///< from an element of the gradient to the tap's
  std::int64_t least = 0, most = 0;  ///< of the shifts
};

/// Some images, or some rows of the phases of one, with the rows of the gradient that reach them.
struct Unit {
  Blocks::Range images, rows, seen;
  std::int64_t first_panel;
};

/// What all blocks know. The windows must stay.
struct Phases {
  Phases(const Windows& all, std::int64_t filters_of_all)
      : windows(all), y(all.y), x(all.x), filters(filters_of_all) {}

  const Windows& windows;
  PhaseAxis y, x;
  std::int64_t filters;
  /// Elements from row to row of a phase and of the gradient: room for both.
  std::int64_t pitch = std::max(x.rows, windows.x.result);

  [[nodiscard]] std::int64_t count() const noexcept { return y.stride * x.stride; }
  [[nodiscard]] std::int64_t pixels(const Unit& unit) const noexcept {
    return unit.images.count() * unit.seen.count() * pitch;
  }
  [[nodiscard]] std::int64_t plane(const Unit& unit) const noexcept {
    return unit.rows.count() * pitch;
  }
  [[nodiscard]] std::int64_t panels(const Unit& unit) const noexcept {
    return ceil_div(pixels(unit), kPanel);
  }
  /// All images, for blocks of so many channels each.
  [[nodiscard]] std::vector<Unit> units(std::int64_t channels, std::int64_t channel_blocks) const;
  /// All panels of a unit: `filters` rows of kPanel pixels each.
  void pack(const float* gradient, const Unit& unit, float* to) const;

 private:
  void pack_panel(const float* gradient, const Unit& unit, std::int64_t panel, float* to) const;
};

/// The planes of a block's channels: image, channel, phase of y, phase of x, row, column. What a
/// tap takes beyond the end of a row is 0, and may lie before the first plane or behind the last.
class Planes {
 public:
  /// They begin as the bias of each channel, or zeros. `phases` and `unit` must stay.
  Planes(const Phases& phases, const Unit& unit, Blocks::Range channels, const float* bias);

  /// Adds rows [first_row, first_row + rows) of the product with a panel, counted from the first
  /// tap of the block's first channel; `sums` has kPanel elements from row to row, and is changed.
  void add(float* sums, std::int64_t panel, std::int64_t first_row, std::int64_t rows);
  /// Puts the planes together: rows of the images, whose first element is `images`.
  void join(float* images) const;
  /// Tells the grid that they are there.
  void finish(const Grid& grid) const;

 private:
  void add_tap(float* sums, std::int64_t panel, std::int64_t tap, std::int64_t channel,
               std::int64_t channels);
  void clear_edges(float* sums, std::int64_t step, std::int64_t channels, std::int64_t shift,
                   std::int64_t first, std::int64_t count) const;
  template <class Function>
  void for_each_row(Function&& function) const;
  void join_row(const float* from, float* to) const;

  const Phases& phases_;
  const Unit& unit_;
  Blocks::Range channels_;
  std::int64_t channel_step_;
  float* data_;
  std::vector<kernels::conv::Piece> pieces_;
  mutable std::vector<const std::byte*> sources_;
};

}  // namespace loom::ops
