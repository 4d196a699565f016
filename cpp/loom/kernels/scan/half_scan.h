// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Running sums and products of simd::Half or simd::BFloat16, in float32, from which each is rounded
// once: some rows at a time become floats, go through the scan, and become what they were. Thread:
// any.

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/scan/scan.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace loom::kernels::scan {

template <class T, bool kProduct>
struct HalfScan {
  using Floats = Scan<float, kProduct, float>;
  using Accumulators = typename Floats::Accumulators;

  const T* from;
  T* to;
  Layout layout;

  static Accumulators none() { return Floats::none(); }

  /// As Scan::run().
  template <bool kWrites>
  void run(std::int64_t unit, std::int64_t begin, std::int64_t end, Accumulators& all) const {
    const std::int64_t width = layout.width_of(unit), most = kAtOnce / width;
    std::array<float, kAtOnce> floats;
    for (std::int64_t first = begin; first < end; first += most) {
      const std::int64_t items = std::min(most, end - first);
      each_row(unit, first, items, [&](std::int64_t place, std::int64_t at, std::int64_t count) {
        widen_row<T>(floats.data() + at, from + place, count);
      });
      Floats{floats.data(), floats.data(), {1, items, width}}.template run<kWrites>(0, 0, items,
                                                                                    all);
      if constexpr (!kWrites) continue;
      each_row(unit, first, items, [&](std::int64_t place, std::int64_t at, std::int64_t count) {
        round_row<T>(to + place, floats.data() + at, count);
      });
    }
  }

  /// As Scan::in_rows().
  void in_rows(std::int64_t begin, std::int64_t end) const {
    const std::int64_t length = layout.length, most = kAtOnce / length;
    if (most < 2) {
      for (std::int64_t row = begin; row < end; ++row) {
        Accumulators all = none();
        run<true>(row, 0, length, all);
      }
      return;
    }
    std::array<float, kAtOnce> floats;
    for (std::int64_t row = begin; row < end; row += most) {
      const std::int64_t rows = std::min(most, end - row);
      widen_row<T>(floats.data(), from + row * length, rows * length);
      Floats{floats.data(), floats.data(), {rows, length, 1}}.in_rows(0, rows);
      round_row<T>(to + row * length, floats.data(), rows * length);
    }
  }

  void pass_on(std::int64_t unit, Accumulators& so_far, Accumulators& total) const {
    Floats{nullptr, nullptr, layout}.pass_on(unit, so_far, total);
  }

 private:
  static constexpr std::int64_t kAtOnce = 2048;

  /// Calls body(place in the tensor, place among the floats, elements) for rows of a unit, or once
  /// where they lie together.
  template <class Body>
  void each_row(std::int64_t unit, std::int64_t first, std::int64_t items, Body body) const {
    const std::int64_t width = layout.width_of(unit);
    if (width == layout.inner) return body(layout.place(unit, first), 0, items * width);
    for (std::int64_t i = 0; i < items; ++i) body(layout.place(unit, first + i), i * width, width);
  }
};

}  // namespace loom::kernels::scan
