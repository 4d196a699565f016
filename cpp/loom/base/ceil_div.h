// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Divisions of whole numbers that round up. Requires: the divisor is positive, and dividend +
// divisor does not overflow; of a negative dividend and signed types the result is 0 or less.
// Inlined everywhere, so that files which are compiled for one instruction set may use them.
// Thread: any.

#include <type_traits>

namespace loom {

/// How many parts of `divisor` have `dividend` in them, the last one perhaps not full.
template <class Dividend, class Divisor>
[[nodiscard, gnu::always_inline]] constexpr std::common_type_t<Dividend, Divisor> ceil_div(
    Dividend dividend, Divisor divisor) noexcept {
  return (dividend + divisor - 1) / divisor;
}

/// The least multiple that is not less than `value`.
template <class Value, class Multiple>
[[nodiscard, gnu::always_inline]] constexpr std::common_type_t<Value, Multiple> round_up(
    Value value, Multiple multiple) noexcept {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace loom
