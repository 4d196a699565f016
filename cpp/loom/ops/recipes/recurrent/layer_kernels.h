// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The commands that walk along the sequence of a recurrent layer, forward and back, and what both
// know of it. Thread: the worker's.

#include "loom/base/ceil_div.h"
#include "loom/kernels/recurrent/cell.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/recurrent/blocks.h"
#include "loom/ops/recipes/recurrent/steps.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace loom::ops::recurrent {

using kernels::recurrent::Cell;
using kernels::recurrent::RowSpan;

// Rows whose sums stay in L1.
inline constexpr std::int64_t kRowTile = 32;

/// The layer.
struct Shape {
  Cell kind;
  Walk walk;
  std::int64_t hidden;

  // Unpacked weights cost as much for each row as packed ones for eight, and packing as much as
  // some ten steps of one row.
  [[nodiscard]] bool packs() const noexcept {
    return walk.count() >= 32 || walk.steps.rows() - walk.count() >= 8;
  }
  [[nodiscard]] std::int64_t gates() const noexcept { return kernels::recurrent::gate_count(kind); }
  [[nodiscard]] std::int64_t width() const noexcept { return gates() * hidden; }
  [[nodiscard]] std::int64_t batch() const noexcept { return walk.steps.batch(); }
  [[nodiscard]] std::int64_t groups(std::int64_t units) const noexcept {
    return ceil_div(hidden, units);
  }
  [[nodiscard]] Recurrence recurrence(std::int64_t units) const noexcept {
    const std::int64_t weights = width() * hidden;
    const double rows = static_cast<double>(walk.steps.rows()) / static_cast<double>(walk.count());
    return {walk.count(), batch(), groups(units), static_cast<double>(weights) * rows,
            weights * static_cast<std::int64_t>(sizeof(float))};
  }
};

inline float* floats(const TensorRef& tensor) {
  return tensor.defined() ? reinterpret_cast<float*>(tensor.data()) : nullptr;
}

/// `tensor` from an element on, in rows of `stride` elements; absent if it is undefined.
inline RowSpan<float> rows_of(const TensorRef& tensor, std::int64_t at, std::int64_t stride) {
  return tensor.defined() ? RowSpan<float>{floats(tensor) + at, stride} : RowSpan<float>{};
}

/// Calls body(row, count) for rows in [row, end), as many at once as have their sums in L1, and
/// none from both sides of a boundary.
template <class Body>
void for_tiles(std::int64_t row, std::int64_t end, std::initializer_list<std::int64_t> boundaries,
               const Body& body) {
  while (row < end) {
    std::int64_t tile = std::min(row + kRowTile, end);
    for (const std::int64_t boundary : boundaries) {
      if (row < boundary) tile = std::min(tile, boundary);
    }
    body(row, tile - row);
    row = tile;
  }
}

/// The states after each sample's last step.
template <class T>
void copy_last(const Shape& s, const T* from, T* to) {
  for (std::int64_t index = 0; index < s.walk.count(); ++index) {
    // Samples that the next step does not have.
    const std::int64_t first = std::min(s.walk.rows(index), s.walk.rows(index + 1));
    std::copy_n(from + (s.walk.first_row(index) + first) * s.hidden,
                (s.walk.rows(index) - first) * s.hidden, to + first * s.hidden);
  }
}

/// A layer in one direction. `gates` are the weighted inputs, and with `keeps` then the activated
/// gates. `packed` has room for the packed weights, where it pays to pack them.
struct ForwardOperands {
  TensorRef output, last_hidden, last_cell, gates, kept, packed;
  TensorRef hidden, cell, weight, input_bias, hidden_bias;
  Shape shape;
  bool keeps;

  void accesses(AccessList& list) const {
    for (const TensorRef* written : {&output, &last_hidden, &last_cell, &kept, &packed}) {
      written->append_access(list, AccessKind::kReplace);
    }
    gates.append_access(list, AccessKind::kUpdate);
    for (const TensorRef* read : {&hidden, &cell, &weight, &input_bias, &hidden_bias}) {
      read->append_access(list, AccessKind::kRead);
    }
  }
};

void forward_kernel(Grid& grid, const ForwardOperands& operands);

/// Both directions of a layer, beside each other.
struct BothOperands {
  ForwardOperands forward, reverse;

  void accesses(AccessList& list) const {
    forward.accesses(list);
    reverse.accesses(list);
  }
};
void forward_kernel_of_both(Grid& grid, const BothOperands& operands);

/// True if that is no slower than one after the other.
[[nodiscard]] bool suits_both(const Shape& shape);

/// `gates_grad` is a GRU's only; `states`, if asked for, become the states before each row.
void backward_kernel(Grid& grid, const TensorRef& input_grad, const TensorRef& gates_grad,
                     const TensorRef& carried, const TensorRef& states, const TensorRef& packed,
                     const TensorRef& output_grad, const TensorRef& hidden_grad,
                     const TensorRef& gates, const TensorRef& kept, const TensorRef& output,
                     const TensorRef& hidden, const TensorRef& cell, const TensorRef& weight,
                     const Shape& s);

}  // namespace loom::ops::recurrent
