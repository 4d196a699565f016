// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/scan.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/launch.h"

#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <array>
#include <vector>

namespace loom::ops {
namespace {

// Of an element, in the unit of Pointwise: it waits for the one before.
constexpr double kCost = 2;
// Columns that go together: their accumulators and four cache lines of each row stay near.
constexpr std::int64_t kColumns = 64;
// As many rows, or groups of columns, are enough for all cores.
constexpr std::int64_t kEnoughUnits = 16;

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

template <class T, bool kProduct>
struct Scan {
  // As wide as the CPU kernel's.
  using Accumulator = std::conditional_t<std::is_same_v<T, float>, double, T>;
  static constexpr Accumulator kNone = kProduct ? 1 : 0;
  using Accumulators = std::array<Accumulator, kColumns>;

  const T* from;
  T* to;
  Layout layout;

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

  void in_units(Grid& grid) const {
    const std::int64_t units = layout.units();
    const std::int64_t block =
        block_length(units, kCost * static_cast<double>(layout.length * layout.width()));
    grid.run_by_any(ceil_div(units, block), [&](std::int64_t index) {
      const std::int64_t end = std::min(units, (index + 1) * block);
      if (layout.inner == 1) return in_rows(index * block, end);
      for (std::int64_t unit = index * block; unit < end; ++unit) {
        Accumulators all;
        std::fill_n(all.data(), layout.width_of(unit), kNone);
        run<true>(unit, 0, layout.length, all);
      }
    });
  }

  void in_parts(Grid& grid, std::int64_t block) const {
    const std::int64_t parts = ceil_div(layout.length, block);
    const std::int64_t units = layout.units();
    std::vector<Accumulators> before(static_cast<std::size_t>(units * parts));
    const auto each = [&](auto&& body) {
      grid.run_by_any(units * parts, [&](std::int64_t index) {
        const std::int64_t begin = index % parts * block;
        body(before[static_cast<std::size_t>(index)], index / parts, begin,
             std::min(layout.length, begin + block));
      });
    };
    each([&](Accumulators& all, std::int64_t unit, std::int64_t begin, std::int64_t end) {
      all.fill(kNone);
      run<false>(unit, begin, end, all);
    });
    for (std::int64_t unit = 0; unit < units; ++unit) {
      Accumulators so_far;
      so_far.fill(kNone);
      for (std::int64_t part = 0; part < parts; ++part) {
        Accumulators& total = before[static_cast<std::size_t>(unit * parts + part)];
        for (std::int64_t j = 0; j < layout.width_of(unit); ++j) {
          const Accumulator with = kProduct ? so_far[j] * total[j] : so_far[j] + total[j];
          total[j] = so_far[j];
          so_far[j] = with;
        }
      }
    }
    each([&](Accumulators& all, std::int64_t unit, std::int64_t begin, std::int64_t end) {
      run<true>(unit, begin, end, all);
    });
  }
};

template <class T, bool kProduct>
void scan(Grid& grid, const TensorRef& result, const TensorRef& self, Layout layout) {
  const at::Tensor to = result.alias(), from = self.alias();
  const Scan<T, kProduct> scan{from.const_data_ptr<T>(), to.mutable_data_ptr<T>(), layout};
  const std::int64_t block =
      block_length(layout.length, kCost * static_cast<double>(layout.width()));
  if (layout.units() >= kEnoughUnits || block >= layout.length) return scan.in_units(grid);
  scan.in_parts(grid, block);
}

template <class T>
void launch_scan(const char* name, const at::Tensor& result, const at::Tensor& self, Layout layout,
                 bool product) {
  if (product) {
    launch(name, Custom{}, scan<T, true>, out(result), self, layout);
  } else {
    launch(name, Custom{}, scan<T, false>, out(result), self, layout);
  }
}

}  // namespace

bool launch_scan(const char* name, const at::Tensor& result, const at::Tensor& self,
                 std::int64_t dim, bool product) {
  if (self.dim() == 0 || self.numel() == 0 || self.scalar_type() != result.scalar_type() ||
      result.sizes() != self.sizes() || !self.is_contiguous() || !result.is_contiguous()) {
    return false;
  }
  const std::int64_t scanned = c10::maybe_wrap_dim(dim, self.dim());
  Layout layout;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    (d < scanned ? layout.outer : d == scanned ? layout.length : layout.inner) *= self.size(d);
  }
  switch (self.scalar_type()) {
    case c10::kFloat:
      launch_scan<float>(name, result, self, layout, product);
      return true;
    case c10::kDouble:
      launch_scan<double>(name, result, self, layout, product);
      return true;
    case c10::kLong:
      launch_scan<std::int64_t>(name, result, self, layout, product);
      return true;
    default:
      return false;
  }
}

}  // namespace loom::ops
