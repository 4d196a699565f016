// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Running sums and products along a dimension of dense tensors. Columns that lie side by side go
// through it together, as vectors. Thread: any.

#include "loom/base/ceil_div.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace loom::kernels::scan {

/// Columns that go together: their accumulators and four cache lines of each row stay near.
inline constexpr std::int64_t kColumns = 64;

/// The scanned dimension between those before and after it. A unit is a row, or a group of columns.
struct Layout {
  std::int64_t outer = 1, length = 1, inner = 1;

  [[nodiscard]] std::int64_t groups() const { return ceil_div(inner, kColumns); }
  [[nodiscard]] std::int64_t units() const { return outer * groups(); }
  [[nodiscard]] std::int64_t width() const { return std::min(inner, kColumns); }
  [[nodiscard]] std::int64_t width_of(std::int64_t unit) const {
    return std::min(kColumns, inner - unit % groups() * kColumns);
  }
  [[nodiscard]] std::int64_t place(std::int64_t unit, std::int64_t item) const {
    return (unit / groups() * length + item) * inner + unit % groups() * kColumns;
  }
};

/// Accumulators are as wide as the CPU kernel's.
template <class T, bool kProduct,
          class Sum = std::conditional_t<std::is_same_v<T, float>, double, T>>
struct Scan {
  using Accumulator = Sum;
  static constexpr Accumulator kNone = kProduct ? 1 : 0;
  using Accumulators = std::array<Accumulator, kColumns>;

  const T* from;
  T* to;
  Layout layout;

  /// Of nothing.
  static Accumulators none() {
    Accumulators all;
    all.fill(kNone);
    return all;
  }

  static Accumulator next(Accumulator so_far, T value) {
    // Integers wrap around.
    if constexpr (std::is_integral_v<T>) {
      const auto a = static_cast<std::uint64_t>(so_far), b = static_cast<std::uint64_t>(value);
      return static_cast<T>(kProduct ? a * b : a + b);
    } else {
      return kProduct ? so_far * static_cast<Accumulator>(value)
                      : so_far + static_cast<Accumulator>(value);
    }
  }

  /// Takes items [begin, end) of a unit into `all`, and writes what it is after each.
  template <bool kWrites>
  void run(std::int64_t unit, std::int64_t begin, std::int64_t end, Accumulators& all) const {
    const std::int64_t width = layout.width_of(unit), pitch = layout.inner;
    const T* read = from + layout.place(unit, begin);
    T* written = to + layout.place(unit, begin);
    if (width == 1) {
      Accumulator one = all[0];
      for (std::int64_t i = 0; i < end - begin; ++i) {
        one = next(one, read[i * pitch]);
        if constexpr (kWrites) written[i * pitch] = static_cast<T>(one);
      }
      all[0] = one;
      return;
    }
    for (std::int64_t i = begin; i < end; ++i, read += pitch, written += pitch) {
      for (std::int64_t j = 0; j < width; ++j) {
        all[j] = next(all[j], read[j]);
        if constexpr (kWrites) written[j] = static_cast<T>(all[j]);
      }
    }
  }

  /// Rows may be so short that nothing may be done for each.
  void in_rows(std::int64_t begin, std::int64_t end) const {
    const T* read = from + begin * layout.length;
    T* written = to + begin * layout.length;
    for (std::int64_t row = begin; row < end; ++row) {
      Accumulator one = kNone;
      for (std::int64_t i = 0; i < layout.length; ++i) {
        one = next(one, *read++);
        *written++ = static_cast<T>(one);
      }
    }
  }

  /// total = so_far, and so_far with the total of the part after it.
  void pass_on(std::int64_t unit, Accumulators& so_far, Accumulators& total) const {
    for (std::int64_t j = 0; j < layout.width_of(unit); ++j) {
      const Accumulator with = kProduct ? so_far[j] * total[j] : so_far[j] + total[j];
      total[j] = so_far[j];
      so_far[j] = with;
    }
  }
};

}  // namespace loom::kernels::scan
