// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/channel_sums.h"

#include "loom/ops/rows/row_scratch.h"

#include <algorithm>
#include <cmath>

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
  grid.run((layout.channels + each - 1) / each, [&](std::int64_t block) {
    const std::int64_t end = std::min(layout.channels, (block + 1) * each);
    for (std::int64_t channel = block * each; channel < end; ++channel) body(channel);
  });
}

/// Two sums for each channel of rows that have an element of each: add(row, first, second) adds a
/// row to sums in float, and a few such sums are added in double.
template <class Add>
void add_rows(Grid& grid, ChannelLayout layout, std::vector<double>& first,
              std::vector<double>& second, Add add) {
  const std::int64_t channels = layout.channels;
  const std::int64_t rows = std::clamp<std::int64_t>(kElementsOfBlock / channels, 16, kRowsOfBlock);
  const std::int64_t blocks = (layout.outer + rows - 1) / rows;
  std::vector<double> parts(static_cast<std::size_t>(2 * blocks * channels));
  grid.run(blocks, [&](std::int64_t block) {
    double* const part = parts.data() + 2 * block * channels;
    float* const sums = row_scratch(2 * channels, 1);
    const std::int64_t end = std::min(layout.outer, (block + 1) * rows);
    for (std::int64_t row = block * rows; row < end;) {
      std::fill_n(sums, 2 * channels, 0.0F);
      for (const std::int64_t last = std::min(end, row + kRowsOfSum); row < last; ++row) {
        add(row, sums, sums + channels);
      }
      for (std::int64_t i = 0; i < 2 * channels; ++i) part[i] += sums[i];
    }
  });
  first.assign(static_cast<std::size_t>(channels), 0);
  second.assign(static_cast<std::size_t>(channels), 0);
  const double* part = parts.data();
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (double& sum : first) sum += *part++;
    for (double& sum : second) sum += *part++;
  }
}

}  // namespace

ChannelMoments channel_moments(Grid& grid, const at::Tensor& input, ChannelLayout layout) {
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

}  // namespace loom::ops
