// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/extremum_places.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/index/elements.h"
#include "loom/kernels/norm/places.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace loom::ops {
namespace {

// What is worth another core.
constexpr std::int64_t kElementsOfBlock = 32768;
// What the beginning and the end of a row cost, in elements.
constexpr std::int64_t kCostOfRow = 128;
// Columns of a block are whole lines of memory.
constexpr std::int64_t kColumnsAtOnce = 64;

/// `outer` times `length` lines of `inner` elements: the places are of the lines.
struct Lines {
  std::int64_t outer, length, inner;
};

/// The values may be absent.
template <class T>
struct Results {
  std::int64_t* places;
  T* values;
};

template <class T>
void of_columns(Grid& grid, const T* from, Lines lines, bool largest, Results<T> to) {
  const std::int64_t fit = std::max<std::int64_t>(kElementsOfBlock / lines.length, 1);
  const std::int64_t width = std::min(round_up(fit, kColumnsAtOnce), lines.inner);
  const std::int64_t across = ceil_div(lines.inner, width);
  const std::int64_t each = std::max<std::int64_t>(fit / lines.inner, 1);
  grid.run_by_any(ceil_div(lines.outer, each) * across, [&](std::int64_t block) {
    const std::int64_t column = block % across * width, first = block / across * each;
    const std::int64_t columns = std::min(width, lines.inner - column);
    for (std::int64_t i = first; i < std::min(first + each, lines.outer); ++i) {
      const T* const part = from + i * lines.length * lines.inner + column;
      const std::int64_t begin = i * lines.inner + column;
      kernels::norm::extremum_places<T>(part, lines.inner, lines.length, columns, largest,
                                        to.places + begin);
      if (to.values == nullptr) continue;
      // All places are there.
      (void)kernels::index::gather_range(to.values, from, to.places,
                                         {lines.outer, lines.length, lines.inner}, begin,
                                         begin + columns);
    }
  });
}

template <class T>
void of_rows(Grid& grid, const T* from, Lines lines, bool largest, Results<T> to) {
  const auto write = [&](std::int64_t row, std::int64_t place) {
    to.places[row] = place;
    if (to.values != nullptr) to.values[row] = from[row * lines.length + place];
  };
  const std::int64_t parts = ceil_div(lines.length, kElementsOfBlock);
  if (parts == 1) {
    const std::int64_t each =
        std::max<std::int64_t>(kElementsOfBlock / (lines.length + kCostOfRow), 1);
    grid.run_by_any(ceil_div(lines.outer, each), [&](std::int64_t block) {
      const std::int64_t end = std::min(lines.outer, (block + 1) * each);
      for (std::int64_t row = block * each; row < end; ++row) {
        write(row,
              kernels::norm::extremum_place<T>(from + row * lines.length, lines.length, largest));
      }
    });
    return;
  }
  const std::int64_t length = ceil_div(lines.length, parts);
  std::vector<std::int64_t> found(static_cast<std::size_t>(lines.outer * parts));
  grid.run_by_any(lines.outer * parts, [&](std::int64_t block) {
    const std::int64_t begin = block % parts * length;
    found[static_cast<std::size_t>(block)] =
        begin + kernels::norm::extremum_place<T>(from + block / parts * lines.length + begin,
                                                 std::min(length, lines.length - begin), largest);
  });
  for (std::int64_t row = 0; row < lines.outer; ++row) {
    const T* const elements = from + row * lines.length;
    const std::int64_t* const of_parts = found.data() + row * parts;
    std::vector<T> bests(static_cast<std::size_t>(parts));
    for (std::int64_t part = 0; part < parts; ++part) {
      bests[static_cast<std::size_t>(part)] = elements[of_parts[part]];
    }
    write(row, of_parts[kernels::norm::extremum_place<T>(bests.data(), parts, largest)]);
  }
}

void run(Grid& grid, const TensorRef& places, const TensorRef& values, const TensorRef& input,
         Lines lines, bool largest) {
  with_row_element(input.dtype(), [&]<class T>() {
    const auto* const from = reinterpret_cast<const T*>(input.data());
    const Results<T> to{reinterpret_cast<std::int64_t*>(places.data()),
                        values.defined() ? reinterpret_cast<T*>(values.data()) : nullptr};
    if (lines.inner == 1) {
      of_rows(grid, from, lines, largest, to);
    } else {
      of_columns(grid, from, lines, largest, to);
    }
  });
}

/// The input's elements as lines, where that is what a kernel takes.
std::optional<Lines> lines_of(const at::Tensor& input, std::optional<std::int64_t> dim) {
  Lines lines{1, input.numel(), 1};
  if (dim && input.dim() > 0) {
    const std::int64_t d = at::maybe_wrap_dim(*dim, input.dim());
    lines.length = input.size(d);
    for (std::int64_t i = 0; i < d; ++i) lines.outer *= input.size(i);
    for (std::int64_t i = d + 1; i < input.dim(); ++i) lines.inner *= input.size(i);
  }
  // The kernel counts rows in the lanes of a vector.
  const bool suits = lines.inner == 1 || lines.length <= std::numeric_limits<std::int32_t>::max();
  return suits ? std::optional(lines) : std::nullopt;
}

}  // namespace

bool launch_extremum_places(const char* name, const at::Tensor& values, const at::Tensor& places,
                            const at::Tensor& input, std::optional<std::int64_t> dim,
                            bool largest) {
  const bool takes_values =
      !values.defined() || (values.is_contiguous() && values.dtype() == input.dtype());
  if (!is_row_element(input.scalar_type()) || input.numel() == 0 || input.is_neg() ||
      !input.is_contiguous() || !takes_values || !places.is_contiguous()) {
    return false;
  }
  const auto lines = lines_of(input, dim);
  if (!lines) return false;
  launch(name, Custom{}, run, out(places), out(values), input, *lines, largest);
  return true;
}

}  // namespace loom::ops
