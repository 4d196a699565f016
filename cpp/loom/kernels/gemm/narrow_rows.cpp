// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/narrow_rows.h"

#include "loom/simd/floats.h"

#include <algorithm>
#include <utility>

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

/// So many inner elements, whose vectors are then held in registers.
constexpr int kMaxHeld = kLanes < 8 ? 0 : 8;
/// Rows that share what is loaded of the matrix where it has more of them.
constexpr int kSharing = kLanes < 8 ? 1 : static_cast<int>(kLanes) / 2;

// Unlike a sum with 0, a difference from it is what it was, and so is no instruction.
[[gnu::always_inline]] inline Floats spread(float value) { return value - Floats{}; }

template <int kVectors>
struct Row {
  Floats sums[kVectors] = {};

  /// kWhole: also what is beyond the last column.
  template <bool kWhole>
  [[gnu::always_inline]] inline void load(const float* from, std::int64_t last) {
    for (int v = 0; v < kVectors; ++v) {
      const float* const at = from + v * kLanes;
      const bool part = !kWhole && v == kVectors - 1;
      sums[v] = part ? load_part(at, last, 0) : simd::LOOM_SIMD::load(at);
    }
  }
  template <bool kWhole>
  [[gnu::always_inline]] inline void store(float* to, std::int64_t last) const {
    for (int v = 0; v < kVectors; ++v) {
      float* const at = to + v * kLanes;
      if (!kWhole && v == kVectors - 1) {
        store_part(at, sums[v], last);
      } else {
        simd::LOOM_SIMD::store(at, sums[v]);
      }
    }
  }
  [[gnu::always_inline]] inline void add(Floats factor, const Row& right) {
    for (int v = 0; v < kVectors; ++v) sums[v] += factor * right.sums[v];
  }
};

/// The bias, or nothing.
template <int kVectors>
[[gnu::always_inline]] inline Row<kVectors> first_of(const NarrowRows& p) {
  Row<kVectors> row;
  if (p.bias != nullptr) row.template load<true>(p.bias, 0);
  return row;
}

/// Rows [begin, end), with kInner inner elements.
template <int kInner, int kVectors, bool kWhole>
[[gnu::always_inline]] inline void multiply_held(const NarrowRows& p, std::int64_t begin,
                                                 std::int64_t end) {
  Row<kVectors> right[kInner];
  for (int k = 0; k < kInner; ++k) right[k].template load<true>(p.right + k * kNarrowColumns, 0);
  const Row<kVectors> first = first_of<kVectors>(p);
  const std::int64_t last = p.columns - (kVectors - 1) * kLanes;
  for (std::int64_t row = begin; row < end; ++row) {
    const float* const left = p.left + row * p.row_stride;
    float* const to = p.to + row * p.ld;
    Row<kVectors> sums = first;
    if (p.add) sums.template load<kWhole>(to, last);
    for (int k = 0; k < kInner; ++k) sums.add(spread(left[k * p.column_stride]), right[k]);
    sums.template store<kWhole>(to, last);
  }
}

/// kRows rows from `row` on.
template <int kRows, int kVectors, bool kWhole>
[[gnu::always_inline]] inline void multiply_rows(const NarrowRows& p, std::int64_t row) {
  const std::int64_t last = p.columns - (kVectors - 1) * kLanes;
  const float* left = p.left + row * p.row_stride;
  float* const to = p.to + row * p.ld;
  Row<kVectors> sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = first_of<kVectors>(p);
  if (p.add) {
    for (int r = 0; r < kRows; ++r) sums[r].template load<kWhole>(to + r * p.ld, last);
  }
  for (std::int64_t k = 0; k < p.inner; ++k, left += p.column_stride) {
    Row<kVectors> right;
    right.template load<true>(p.right + k * kNarrowColumns, 0);
    for (int r = 0; r < kRows; ++r) sums[r].add(spread(left[r * p.row_stride]), right);
  }
  for (int r = 0; r < kRows; ++r) sums[r].template store<kWhole>(to + r * p.ld, last);
}

template <int kVectors, bool kWhole>
[[gnu::always_inline]] inline void multiply_shared(const NarrowRows& p, std::int64_t begin,
                                                   std::int64_t end) {
  std::int64_t row = begin;
  for (; row + kSharing <= end; row += kSharing) multiply_rows<kSharing, kVectors, kWhole>(p, row);
  for (; row < end; ++row) multiply_rows<1, kVectors, kWhole>(p, row);
}

template <int kVectors, bool kWhole>
[[gnu::always_inline]] inline void multiply_some(const NarrowRows& p, std::int64_t begin,
                                                 std::int64_t end) {
  if (p.inner > kMaxHeld) return multiply_shared<kVectors, kWhole>(p, begin, end);
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    ((p.inner == kLess + 1 ? multiply_held<kLess + 1, kVectors, kWhole>(p, begin, end) : void()),
     ...);
  }(std::make_integer_sequence<int, kMaxHeld>{});
}

template <int kVectors>
void multiply(const NarrowRows& p) {
  // A vector that is stored as a whole reaches into rows that are written later, if there are any.
  const std::int64_t beyond = kVectors * kLanes - p.columns;
  const bool follows = p.ld == p.columns && !p.add;
  const std::int64_t short_rows =
      beyond == 0 ? 0 : (follows ? (beyond + p.columns - 1) / p.columns : p.rows);
  const std::int64_t whole = std::max<std::int64_t>(p.rows - short_rows, 0);
  multiply_some<kVectors, true>(p, 0, whole);
  multiply_some<kVectors, false>(p, whole, p.rows);
}

}  // namespace

void multiply_narrow(const NarrowRows& p) noexcept {
  constexpr int kMostVectors = static_cast<int>(kNarrowColumns / kLanes);
  const std::int64_t vectors = (p.columns + kLanes - 1) / kLanes;
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    ((vectors == kLess + 1 ? multiply<kLess + 1>(p) : void()), ...);
  }(std::make_integer_sequence<int, kMostVectors>{});
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
