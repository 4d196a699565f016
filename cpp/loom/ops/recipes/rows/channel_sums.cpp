// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/channel_sums.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/norm/moments.h"
#include "loom/kernels/norm/sums.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <array>
#include <optional>

namespace loom::ops {
namespace {

using kernels::norm::Range;
using kernels::norm::RowBlock;

constexpr std::int64_t kRowsOfBlock = 512, kChannelsOfBlock = 1024;
// So many strips of channels keep all cores busy.
constexpr std::int64_t kManyStrips = 64;
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
/// add(block, room, part) adds a block's elements to its sums. Those of a channel are added in the
/// order of the rows.
template <class Add>
std::vector<double> add_blocks(Grid& grid, ChannelLayout layout, int sums, Add add) {
  const std::int64_t strips = ceil_div(layout.channels, kChannelsOfBlock);
  const std::int64_t strip = ceil_div(layout.channels, strips);
  // Strips are blocks enough, where there are many: sums of blocks of rows are memory, too.
  const std::int64_t rows =
      strips >= kManyStrips ? layout.outer
                            : std::clamp<std::int64_t>(kElementsOfBlock / strip, 16, kRowsOfBlock);
  const std::int64_t length = sums * layout.channels, blocks = ceil_div(layout.outer, rows);
  std::vector<double> parts(static_cast<std::size_t>(blocks * length));
  grid.run_by_any(blocks * strips, [&](std::int64_t index) {
    const std::int64_t row = index / strips * rows, channel = index % strips * strip;
    add(RowBlock{{row, std::min(layout.outer, row + rows)},
                 {channel, std::min(layout.channels, channel + strip)},
                 layout.channels},
        row_scratch(sums * strip, 1), parts.data() + index / strips * length);
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
    return add_blocks(grid, layout, 1, [&](const RowBlock& block, float* room, double* part) {
      kernels::norm::add_sums_of_rows(from, block, room, part);
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
  const auto both =
      add_blocks(grid, layout, 2, [&](const RowBlock& block, float* room, double* part) {
        kernels::norm::add_moments_of_rows(from, shift.data(), block, room, part,
                                           part + layout.channels);
      });
  split(both, moments.mean, moments.square_sum);
  kernels::norm::finish_moments(layout, shift.data(), moments.mean.data(),
                                moments.square_sum.data());
  return moments;
}

/// Replaces the moments of channels whose squares float32 does not hold.
template <class T>
void widen_moments(Grid& grid, const T* from, ChannelLayout layout, WideMoments wide, double eps,
                   ChannelMoments& moments) {
  const auto count = static_cast<double>(layout.count());
  const auto needs_wide = [&](double squares) {
    return kernels::norm::needs_wide_moments(squares, count, eps);
  };
  // Almost always there are none, and few channels are looked through sooner than cores wake.
  if (layout.channels <= kChannelsOfBlock && std::ranges::none_of(moments.square_sum, needs_wide)) {
    return;
  }
  const auto replace = [&](std::int64_t channel, const kernels::norm::Moments& found) {
    moments.mean[static_cast<std::size_t>(channel)] = found.mean;
    moments.square_sum[static_cast<std::size_t>(channel)] = found.squares;
  };
  const bool by_sums = wide == WideMoments::kBySums;
  if (by_sums && layout.inner == 1) {
    // Channels beside each other share cache lines: all of a strip are read together.
    constexpr std::int64_t kStrip = 64;
    for_channels(grid, layout.channels, kStrip, [&](Range channels) {
      const double* const squares = moments.square_sum.data();
      if (std::none_of(squares + channels.begin, squares + channels.end, needs_wide)) return;
      std::array<kernels::norm::Moments, kStrip> found;
      kernels::norm::wide_moments_of_columns(from + channels.begin, layout.outer, layout.channels,
                                             channels.length(), found.data());
      for (std::int64_t c = channels.begin; c < channels.end; ++c) {
        if (needs_wide(squares[c])) replace(c, found[static_cast<std::size_t>(c - channels.begin)]);
      }
    });
    return;
  }
  const auto compute =
      by_sums ? &kernels::norm::wide_moments_of_sums<T> : &kernels::norm::wide_moments<T>;
  for_channels(grid, layout.channels, kElementsOfBlock / layout.count(), [&](Range channels) {
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      if (!needs_wide(moments.square_sum[static_cast<std::size_t>(c)])) continue;
      replace(c, compute(from + c * layout.inner, layout.outer, layout.channels * layout.inner,
                         layout.inner));
    }
  });
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
  const auto both =
      add_blocks(grid, layout, 2, [&](const RowBlock& block, float* room, double* part) {
        kernels::norm::add_gradients_of_rows(grad, from, mean, block, room, part,
                                             part + layout.channels);
      });
  split(both, gradients.sum, gradients.product);
  return gradients;
}

// Below this a reduction is not worth a kernel of its own.
constexpr std::int64_t kFewElements = 4096;
constexpr std::int64_t kFewColumns = 16;
// Few long rows are cut along their columns, by ATen's kernel.
constexpr std::int64_t kFewRows = 64;

/// Whether the sums are those of columns, or of planes, and not too few.
bool suits_sums(ChannelLayout layout) {
  if (layout.outer < 2 || layout.channels < 2) return false;
  const std::int64_t columns = layout.inner > 1 ? layout.inner : layout.channels;
  if (columns < kFewColumns || layout.channels > kMaxRowColumns) return false;
  return layout.inner > 1 || layout.outer >= kFewRows;
}

}  // namespace

std::optional<ChannelLayout> channel_layout_of(const at::Tensor& self, Reduced reduced) {
  if (!self.is_non_overlapping_and_dense()) return std::nullopt;
  at::DimVector dims;
  for (std::int64_t dim = 0; dim < self.dim(); ++dim) {
    if (self.size(dim) != 1) dims.push_back(dim);
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [&](std::int64_t a, std::int64_t b) { return self.stride(a) > self.stride(b); });
  ChannelLayout layout{1, 1, 1};
  enum { kOuter, kChannels, kInner } part = kOuter;
  std::int64_t kept = -1;
  for (const std::int64_t dim : dims) {
    if (reduced.reduces(dim)) {
      if (part == kChannels) part = kInner;
      (part == kOuter ? layout.outer : layout.inner) *= self.size(dim);
      continue;
    }
    // The result is contiguous: what is kept is in the order of its dimensions in memory, too.
    if (part == kInner || dim < kept) return std::nullopt;
    kept = dim;
    part = kChannels;
    layout.channels *= self.size(dim);
  }
  return layout;
}

ChannelMoments channel_moments(Grid& grid, const at::Tensor& input, ChannelLayout layout,
                               WideMoments wide, double eps) {
  return with_row_element(input.scalar_type(), [&]<class T>() {
    const T* const from = row_elements<T>(input);
    ChannelMoments moments = moments_of(grid, from, layout);
    widen_moments(grid, from, layout, wide, eps, moments);
    return moments;
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
  const auto layout = channel_layout_of(self, reduced);
  if (!layout || !suits_sums(*layout)) return false;
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
