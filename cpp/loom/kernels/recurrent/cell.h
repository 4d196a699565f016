// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a recurrent cell does element by element, for rows of a batch and some of their units, in
// float32. Gates are in PyTorch's order: input, forget, cell, output of an LSTM; reset, update, new
// of a GRU; one of a plain RNN. Thread: any; only what is passed is touched.

#include "loom/simd/versions.h"

#include <cstdint>
#include <type_traits>

namespace loom::kernels::recurrent {

enum class Cell : std::uint8_t { kLstm, kGru, kTanh, kRelu };

[[nodiscard]] constexpr std::int64_t gate_count(Cell cell) noexcept {
  return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1;
}
/// Units whose gates are summed up by one product, all units of a gate beside each other.
[[nodiscard]] constexpr std::int64_t group_units(Cell cell) noexcept {
  return gate_count(cell) == 1 ? 64 : 16;
}
[[nodiscard]] constexpr std::int64_t group_sums(Cell cell) noexcept {
  return gate_count(cell) * group_units(cell);
}
inline constexpr std::int64_t kMaxGroupSums = 64;

/// Rows that lie `stride` elements apart; absent if `data` is null.
template <class T>
struct RowSpan {
  T* data = nullptr;
  std::int64_t stride = 0;

  [[gnu::always_inline]] explicit operator bool() const noexcept { return data != nullptr; }
  [[gnu::always_inline]] T* operator[](std::int64_t row) const noexcept {
    return data + row * stride;
  }
  [[gnu::always_inline]] operator RowSpan<const T>() const noexcept
    requires(!std::is_const_v<T>)
  {
    return {data, stride};
  }
};

/// A step of any number of units.
struct CellStep {
  Cell cell;
  std::int64_t rows, units;
  std::int64_t gate_stride;           ///< from gate to gate, but for those of `sums`
  RowSpan<const float> sums = {};     ///< the last state, weighted
  std::int64_t sums_gate_stride = 0;  ///< from gate to gate
  const float *input_bias = nullptr, *hidden_bias = nullptr;  ///< both or neither
  RowSpan<const float> input = {};                            ///< the input, weighted
  RowSpan<float> gates = {};  ///< activated gates, if wanted; may be `input`; not of a plain RNN
  RowSpan<const float> before = {};  ///< LSTM: the cell's last state; GRU: the last state
  /// LSTM: the cell's new state, may be `before`. GRU: the new gate's part of the last state, if
  /// wanted.
  RowSpan<float> kept = {};
  RowSpan<float> state = {};  ///< the new one
};
LOOM_SIMD_VERSIONS(cell_step, void(const CellStep& step) noexcept);

/// The gradient of a step, of any number of units.
struct CellGradient {
  Cell cell;
  std::int64_t rows, units;
  std::int64_t gate_stride;
  RowSpan<const float> from_after = {};   ///< the new state's gradient by the step after, if any
  RowSpan<const float> output_grad = {};  ///< another part of the new state's gradient, if any
  RowSpan<const float> gates = {};        ///< activated; of a plain RNN: the new state
  RowSpan<const float> before = {}, kept = {};  ///< as in CellStep
  /// LSTM: the gradient of the cell's state, of the new one and then of the last one. GRU: the
  /// part of the gradient of a state that does not go through gates, likewise.
  RowSpan<float> carried = {};
  RowSpan<float> input_grad = {};   ///< of the gates' sums
  RowSpan<float> hidden_grad = {};  ///< GRU: the same with the new gate's part of the last state
};
LOOM_SIMD_VERSIONS(cell_gradient, void(const CellGradient& step) noexcept);

}  // namespace loom::kernels::recurrent
