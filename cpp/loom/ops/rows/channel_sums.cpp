// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/channel_sums.h"

#include "loom/ops/rows/row_scratch.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace loom::ops {
namespace {

constexpr std::int64_t kRowsOfBlock = 512;
// So many rows are added to each other in float, and such sums in double.
constexpr std::int64_t kRowsOfSum = 16;
// What is worth another core.
constexpr std::int64_t kElementsOfBlock = 32768;

const std::byte* at_element(const at::Tensor& tensor, std::int64_t index) {
  return static_cast<const std::byte*>(tensor.const_data_ptr()) +
         static_cast<std::size_t>(index) * tensor.itemsize();
}

/// Calls body(channel) for all of them, some to a block.
template <class Body>
void for_channels(Grid& grid, ChannelLayout layout, Body body) {
  const std::int64_t each = std::max<std::int64_t>(1, kElementsOfBlock / layout.count());
  grid.run_by_any((layout.channels + each - 1) / each, [&](std::int64_t block) {
    const std::int64_t end = std::min(layout.channels, (block + 1) * each);
    for (std::int64_t channel = block * each; channel < end; ++channel) body(channel);
  });
}

/// `kSums` sums for each channel of rows that have an element of each, one after the other:
/// add(row, rows, sums) adds rows to sums in float, and a few such sums are added in double.
template <int kSums, class Add>
std::vector<double> add_rows(Grid& grid, ChannelLayout layout, Add add) {
  const std::int64_t sums_of_row = kSums * layout.channels;
  const std::int64_t rows =
      std::clamp<std::int64_t>(kElementsOfBlock / layout.channels, 16, kRowsOfBlock);
  const std::int64_t blocks = (layout.outer + rows - 1) / rows;
  std::vector<double> parts(static_cast<std::size_t>(blocks * sums_of_row));
  grid.run_by_any(blocks, [&](std::int64_t block) {
    double* const part = parts.data() + block * sums_of_row;
    float* const sums = row_scratch(sums_of_row, 1);
    const std::int64_t end = std::min(layout.outer, (block + 1) * rows);
    for (std::int64_t row = block * rows; row < end; row += kRowsOfSum) {
      std::fill_n(sums, sums_of_row, 0.0F);
      add(row, std::min(kRowsOfSum, end - row), sums);
      for (std::int64_t i = 0; i < sums_of_row; ++i) part[i] += sums[i];
    }
  });
  std::vector<double> all(parts.begin(), parts.begin() + sums_of_row);
  for (std::int64_t block = 1; block < blocks; ++block) {
    const double* const part = parts.data() + block * sums_of_row;
    for (std::int64_t i = 0; i < sums_of_row; ++i) all[static_cast<std::size_t>(i)] += part[i];
  }
  return all;
}

/// Two sums for each channel: add(row, first, second) adds one row.
template <class Add>
void add_rows(Grid& grid, ChannelLayout layout, std::vector<double>& first,
              std::vector<double>& second, Add add) {
  const std::int64_t channels = layout.channels;
  const auto both =
      add_rows<2>(grid, layout, [&](std::int64_t row, std::int64_t rows, float* sums) {
        for (std::int64_t i = 0; i < rows; ++i) add(row + i, sums, sums + channels);
      });
  first.assign(both.begin(), both.begin() + channels);
  second.assign(both.begin() + channels, both.end());
}

// Rows that are a power of two apart are all in one set of the L1 cache, which has 8 ways.
constexpr std::int64_t kRowsAtOnce = 8;

std::vector<double> channel_sums(Grid& grid, const at::Tensor& input, ChannelLayout layout) {
  const RowKernels& kernels = row_kernels(*row_element(input.scalar_type()));
  if (layout.inner > 1) {
    std::vector<double> sums(static_cast<std::size_t>(layout.channels));
    for_channels(grid, layout, [&](std::int64_t channel) {
      sums[static_cast<std::size_t>(channel)] =
          kernels.sum(at_element(input, channel * layout.inner), layout.outer,
                      layout.channels * layout.inner, layout.inner);
    });
    return sums;
  }
  return add_rows<1>(grid, layout, [&](std::int64_t row, std::int64_t rows, float* sums) {
    for (std::int64_t i = 0; i < rows; i += kRowsAtOnce) {
      kernels.add_rows(at_element(input, (row + i) * layout.channels),
                       std::min(kRowsAtOnce, rows - i), layout.channels, sums, layout.channels);
    }
  });
}

template <class T>
void store(const std::vector<double>& sums, double divisor, void* to) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    static_cast<T*>(to)[i] = static_cast<T>(static_cast<float>(sums[i] / divisor));
  }
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

bool has_short_runs(ChannelLayout layout) {
  return layout.inner > 1 && layout.inner < kShortestRun;
}

// Elements of a row that are added up together: they stay in L1.
constexpr std::int64_t kColumns = 1024;

/// Some channels with short runs: their elements in a row, and two sums for each of these.
class ShortRuns {
 public:
  ShortRuns(ChannelLayout layout, std::int64_t first, std::int64_t last)
      : layout_(layout), first_(first), last_(last), room_(row_scratch(columns(), 3)) {}

  [[nodiscard]] std::int64_t columns() const { return (last_ - first_) * layout_.inner; }
  /// Of each element its channel's.
  [[nodiscard]] const float* shift() const { return room_ + 2 * row_pitch(columns()); }
  void set_shift(const double* of_channel) {
    float* to = room_ + 2 * row_pitch(columns());
    for (std::int64_t c = first_; c < last_; ++c, to += layout_.inner) {
      std::fill_n(to, layout_.inner, static_cast<float>(of_channel[c]));
    }
  }
  /// add(begin, first, second) adds the elements that begin there to sums; these are added to the
  /// channels' in double, a few rows at a time.
  template <class Add>
  void add_rows(double* first, double* second, Add add) {
    float *const one = room_, *const two = room_ + row_pitch(columns());
    for (std::int64_t row = 0; row < layout_.outer;) {
      std::fill_n(room_, 2 * row_pitch(columns()), 0.0F);
      for (const std::int64_t end = std::min(layout_.outer, row + kRowsOfSum); row < end; ++row) {
        add((row * layout_.channels + first_) * layout_.inner, one, two);
      }
      for (std::int64_t c = first_, i = 0; c < last_; ++c) {
        for (const std::int64_t end = i + layout_.inner; i < end; ++i) {
          first[c] += one[i];
          second[c] += two[i];
        }
      }
    }
  }

 private:
  ChannelLayout layout_;
  std::int64_t first_, last_;
  float* room_;
};

/// Calls body(ShortRuns, first, last) for all channels, some to a block.
template <class Body>
void for_short_runs(Grid& grid, ChannelLayout layout, Body body) {
  const std::int64_t each = std::max<std::int64_t>(1, kColumns / layout.inner);
  grid.run_by_any((layout.channels + each - 1) / each, [&](std::int64_t block) {
    const std::int64_t first = block * each, last = std::min(layout.channels, first + each);
    ShortRuns runs(layout, first, last);
    body(runs, static_cast<std::size_t>(first), static_cast<std::size_t>(last));
  });
}

ChannelMoments short_moments(Grid& grid, const at::Tensor& input, ChannelLayout layout) {
  const RowKernels& kernels = row_kernels(*row_element(input.scalar_type()));
  const auto channels = static_cast<std::size_t>(layout.channels);
  const auto count = static_cast<double>(layout.count());
  ChannelMoments moments{std::vector<double>(channels), std::vector<double>(channels)};
  std::vector<double> sums(channels), squares(channels);
  for_short_runs(grid, layout, [&](ShortRuns& runs, std::size_t first, std::size_t last) {
    const auto add = [&](std::int64_t begin, float* one, float* two) {
      kernels.add_moments(at_element(input, begin), runs.shift(), one, two, runs.columns());
    };
    runs.set_shift(moments.mean.data());  // 0
    runs.add_rows(sums.data(), squares.data(), add);
    for (std::size_t c = first; c < last; ++c) {
      const auto mean = static_cast<float>(sums[c] / count);
      moments.mean[c] = std::isfinite(mean) ? mean : 0;
      sums[c] = squares[c] = 0;
    }
    runs.set_shift(moments.mean.data());
    runs.add_rows(sums.data(), squares.data(), add);
    for (std::size_t c = first; c < last; ++c) {
      moments.mean[c] += sums[c] / count;
      moments.square_sum[c] = squares[c] - sums[c] * sums[c] / count;
    }
  });
  return moments;
}

ChannelGradients short_gradients(Grid& grid, const at::Tensor& grad, const at::Tensor& input,
                                 const std::vector<float>& mean, ChannelLayout layout) {
  const RowKernels& kernels = row_kernels(*row_element(input.scalar_type()));
  const std::vector<double> shift(mean.begin(), mean.end());
  ChannelGradients gradients{std::vector<double>(mean.size()), std::vector<double>(mean.size())};
  for_short_runs(grid, layout, [&](ShortRuns& runs, std::size_t, std::size_t) {
    runs.set_shift(shift.data());
    runs.add_rows(gradients.sum.data(), gradients.product.data(),
                  [&](std::int64_t begin, float* sums, float* products) {
                    kernels.add_gradients(at_element(grad, begin), at_element(input, begin),
                                          runs.shift(), sums, products, runs.columns());
                  });
  });
  return gradients;
}

}  // namespace

ChannelMoments channel_moments(Grid& grid, const at::Tensor& input, ChannelLayout layout) {
  if (has_short_runs(layout)) return short_moments(grid, input, layout);
  ChannelMoments moments;
  const RowKernels& kernels = row_kernels(*row_element(input.scalar_type()));
  const auto channels = static_cast<std::size_t>(layout.channels);
  const auto count = static_cast<double>(layout.count());
  if (layout.inner > 1) {
    moments.mean.resize(channels);
    moments.square_sum.resize(channels);
    for_channels(grid, layout, [&](std::int64_t channel) {
      const std::byte* const runs = at_element(input, channel * layout.inner);
      const std::int64_t stride = layout.channels * layout.inner;
      const double mean = kernels.sum(runs, layout.outer, stride, layout.inner) / count;
      const double squares =
          kernels.square_sum(runs, layout.outer, stride, layout.inner, static_cast<float>(mean));
      // The mean was rounded.
      const double distance = mean - static_cast<float>(mean);
      moments.mean[static_cast<std::size_t>(channel)] = mean;
      moments.square_sum[static_cast<std::size_t>(channel)] = squares - count * distance * distance;
    });
    return moments;
  }
  // Distances from the mean of a few rows: elements of a channel are near it, their sum's square
  // and the sum of their squares then are not near each other.
  std::vector<float> shift(channels), row_of(channels);
  const std::int64_t looks = std::min<std::int64_t>(layout.outer, 64);
  for (std::int64_t look = 0; look < looks; ++look) {
    const std::int64_t row = layout.outer * look / looks;
    kernels.to_float(row_of.data(), at_element(input, row * layout.channels), layout.channels);
    for (std::size_t c = 0; c < channels; ++c) shift[c] += row_of[c] / static_cast<float>(looks);
  }
  for (float& value : shift) value = std::isfinite(value) ? value : 0;
  add_rows(grid, layout, moments.mean, moments.square_sum,
           [&](std::int64_t row, float* sums, float* squares) {
             kernels.add_moments(at_element(input, row * layout.channels), shift.data(), sums,
                                 squares, layout.channels);
           });
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = moments.mean[c] / count;
    // Keeps what is not a number.
    const double squares = moments.square_sum[c] - mean * moments.mean[c];
    moments.square_sum[c] = squares < 0 ? 0 : squares;
    moments.mean[c] = mean + shift[c];
  }
  return moments;
}

ChannelGradients channel_gradients(Grid& grid, const at::Tensor& grad, const at::Tensor& input,
                                   const std::vector<float>& mean, ChannelLayout layout) {
  if (has_short_runs(layout)) return short_gradients(grid, grad, input, mean, layout);
  ChannelGradients gradients;
  const RowKernels& kernels = row_kernels(*row_element(input.scalar_type()));
  if (layout.inner > 1) {
    gradients.sum.resize(mean.size());
    gradients.product.resize(mean.size());
    for_channels(grid, layout, [&](std::int64_t channel) {
      const auto c = static_cast<std::size_t>(channel);
      const std::int64_t begin = channel * layout.inner;
      double sums[2];
      kernels.gradient_sums(at_element(grad, begin), at_element(input, begin), layout.outer,
                            layout.channels * layout.inner, layout.inner, mean[c], sums);
      gradients.sum[c] = sums[0];
      gradients.product[c] = sums[1];
    });
    return gradients;
  }
  add_rows(grid, layout, gradients.sum, gradients.product,
           [&](std::int64_t row, float* sums, float* products) {
             const std::int64_t begin = row * layout.channels;
             kernels.add_gradients(at_element(grad, begin), at_element(input, begin), mean.data(),
                                   sums, products, layout.channels);
           });
  return gradients;
}

bool launch_channel_sums(const char* name, const at::Tensor& result, const at::Tensor& self,
                         Reduced reduced, bool mean) {
  if (!row_element(self.scalar_type()) || self.scalar_type() != result.scalar_type() ||
      self.numel() < kFewElements || !result.is_contiguous() || self.is_neg()) {
    return false;
  }
  const auto layout = layout_of(self, reduced);
  if (!layout) return false;
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                         ChannelLayout channels, double divisor) {
    const std::vector<double> sums = channel_sums(grid, from.alias(), channels);
    const bool is_float = to.dtype() == c10::ScalarType::Float;
    (is_float ? store<float> : store<c10::BFloat16>)(sums, divisor, to.data());
  };
  const double divisor = mean ? static_cast<double>(layout->count()) : 1.0;
  launch(name, Custom{}, kernel, out(result), self, *layout, divisor);
  return true;
}

}  // namespace loom::ops
