// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/channel_sums.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/norm/sums.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <optional>

namespace loom::ops {
namespace {

using kernels::norm::Range;

constexpr std::int64_t kRowsOfBlock = 512;
// What is worth another core.
constexpr std::int64_t kElementsOfBlock = 32768;
// Elements of a row of short runs that are added up together: they stay in L1.
constexpr std::int64_t kColumns = 1024;

/// Calls body(channels) for all of them, some to a block.
template <class Body>
void for_channels(Grid& grid, std::int64_t channels, std::int64_t each, Body body) {
  each = std::max<std::int64_t>(1, each);
  grid.run_by_any(ceil_div(channels, each), [&](std::int64_t block) {
    body(Range{block * each, std::min(channels, (block + 1) * each)});
  });
}
template <class Body>
void for_channels(Grid& grid, ChannelLayout layout, Body body) {
  for_channels(
      grid, layout.channels,
      layout.has_short_runs() ? kColumns / layout.inner : kElementsOfBlock / layout.count(), body);
}

/// `sums` sums for each channel of rows that have an element of each, one after the other:
/// add(rows, room, part) adds rows to a block's sums. These are added in the order of the blocks.
template <class Add>
std::vector<double> add_blocks(Grid& grid, ChannelLayout layout, int sums, Add add) {
  const std::int64_t length = sums * layout.channels;
  const std::int64_t rows =
      std::clamp<std::int64_t>(kElementsOfBlock / layout.channels, 16, kRowsOfBlock);
  const std::int64_t blocks = ceil_div(layout.outer, rows);
  std::vector<double> parts(static_cast<std::size_t>(blocks * length));
  grid.run_by_any(blocks, [&](std::int64_t block) {
    add(Range{block * rows, std::min(layout.outer, (block + 1) * rows)}, row_scratch(length, 1),
        parts.data() + block * length);
  });
  for (std::int64_t block = 1; block < blocks; ++block) {
    kernels::norm::add_doubles(parts.data(), parts.data() + block * length, length);
  }
  parts.resize(static_cast<std::size_t>(length));
  return parts;
}

/// Cuts two sums for each channel into those.
void split(const std::vector<double>& both, std::vector<double>& first,
           std::vector<double>& second) {
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
  first.assign(both.begin(), middle);
  second.assign(middle, both.end());
}

template <class T>
std::vector<double> sums_of(Grid& grid, const T* from, ChannelLayout layout) {
  if (layout.inner == 1) {
    return add_blocks(grid, layout, 1, [&](Range rows, float* room, double* part) {
      kernels::norm::add_sums_of_rows(from, layout.channels, rows, room, part);
    });
  }
  std::vector<double> sums(static_cast<std::size_t>(layout.channels));
  for_channels(grid, layout.channels, kElementsOfBlock / layout.count(), [&](Range channels) {
    kernels::norm::channel_sums(from, layout, channels, sums.data());
  });
  return sums;
}

template <class T>
ChannelMoments moments_of(Grid& grid, const T* from, ChannelLayout layout) {
  const auto channels = static_cast<std::size_t>(layout.channels);
  ChannelMoments moments{std::vector<double>(channels), std::vector<double>(channels)};
  double *const mean = moments.mean.data(), *const square_sum = moments.square_sum.data();
  if (layout.inner > 1) {
    for_channels(grid, layout, [&](Range range) {
      float* const room = row_scratch(kernels::norm::room_of_channels(layout, range), 1);
      kernels::norm::channel_moments(from, layout, range, room, mean, square_sum);
    });
    return moments;
  }
  std::vector<float> shift(channels), room_of_row(channels);
  kernels::norm::find_shift(from, layout, room_of_row.data(), shift.data());
  const auto both = add_blocks(grid, layout, 2, [&](Range rows, float* room, double* part) {
    kernels::norm::add_moments_of_rows(from, shift.data(), layout.channels, rows, room, part);
  });
  split(both, moments.mean, moments.square_sum);
  kernels::norm::finish_moments(layout, shift.data(), moments.mean.data(),
                                moments.square_sum.data());
  return moments;
}

template <class T>
ChannelGradients gradients_of(Grid& grid, const T* grad, const T* from, const float* mean,
                              ChannelLayout layout) {
  const auto channels = static_cast<std::size_t>(layout.channels);
  ChannelGradients gradients{std::vector<double>(channels), std::vector<double>(channels)};
  if (layout.inner > 1) {
    for_channels(grid, layout, [&](Range range) {
      float* const room = row_scratch(kernels::norm::room_of_channels(layout, range), 1);
      kernels::norm::channel_gradients(grad, from, layout, range, mean, room, gradients.sum.data(),
                                       gradients.product.data());
    });
    return gradients;
  }
  const auto both = add_blocks(grid, layout, 2, [&](Range rows, float* room, double* part) {
    kernels::norm::add_gradients_of_rows(grad, from, mean, layout.channels, rows, room, part);
  });
  split(both, gradients.sum, gradients.product);
  return gradients;
}

// Below this a reduction is not worth a kernel of its own.
constexpr std::int64_t kFewElements = 4096;
constexpr std::int64_t kFewColumns = 16;
// Few long rows are cut along their columns, by ATen's kernel.
constexpr std::int64_t kFewRows = 64;

std::optional<ChannelLayout> layout_of(const at::Tensor& self, Reduced reduced) {
  ChannelLayout layout{1, 1, 1};
  enum { kOuter, kChannels, kInner } part = kOuter;
  std::int64_t kept = -1;
  const auto add = [&](std::int64_t dim) {
    const std::int64_t size = self.size(dim);
    if (size == 1) return true;
    if (reduced.reduces(dim)) {
      if (part == kChannels) part = kInner;
      (part == kOuter ? layout.outer : layout.inner) *= size;
      return true;
    }
    // The result is contiguous: what is kept is in the order of its dimensions in memory, too.
    if (part == kInner || dim < kept) return false;
    kept = dim;
    part = kChannels;
    layout.channels *= size;
    return true;
  };
  if (self.is_contiguous()) {
    for (std::int64_t dim = 0; dim < self.dim(); ++dim) {
      if (!add(dim)) return std::nullopt;
    }
  } else if (self.dim() == 4 && self.is_contiguous(c10::MemoryFormat::ChannelsLast)) {
    for (const std::int64_t dim : {0, 2, 3, 1}) {
      if (!add(dim)) return std::nullopt;
    }
  } else {
    return std::nullopt;
  }
  if (layout.outer < 2 || layout.channels < 2) return std::nullopt;
  const std::int64_t columns = layout.inner > 1 ? layout.inner : layout.channels;
  if (columns < kFewColumns || layout.channels > kMaxRowColumns) return std::nullopt;
  if (layout.inner == 1 && layout.outer < kFewRows) return std::nullopt;
  return layout;
}

}  // namespace

ChannelMoments channel_moments(Grid& grid, const at::Tensor& input, ChannelLayout layout) {
  return with_row_element(input.scalar_type(), [&]<class T>() {
    return moments_of(grid, row_elements<T>(input), layout);
  });
}

ChannelGradients channel_gradients(Grid& grid, const at::Tensor& grad, const at::Tensor& input,
                                   const std::vector<float>& mean, ChannelLayout layout) {
  return with_row_element(input.scalar_type(), [&]<class T>() {
    return gradients_of(grid, row_elements<T>(grad), row_elements<T>(input), mean.data(), layout);
  });
}

bool launch_channel_sums(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced, bool mean) {
  if (!is_row_element(self.scalar_type()) || self.scalar_type() != result.scalar_type() ||
      self.numel() < kFewElements || !result.is_contiguous() || self.is_neg()) {
    return false;
  }
  const auto layout = layout_of(self, reduced);
  if (!layout) return false;
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                         ChannelLayout channels, double divisor) {
    with_row_element(from.dtype(), [&]<class T>() {
      const auto sums = sums_of(grid, reinterpret_cast<const T*>(from.data()), channels);
      kernels::norm::store_quotients(sums.data(), divisor, channels.channels,
                                     reinterpret_cast<T*>(to.data()));
    });
  };
  const double divisor = mean ? static_cast<double>(layout->count()) : 1.0;
  launch(name, Custom{}, kernel, out(result), self, *layout, divisor);
  return true;
}

}  // namespace loom::ops
