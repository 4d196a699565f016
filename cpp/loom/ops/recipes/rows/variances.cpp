// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/variances.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/norm/moments.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/channel_sums.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace loom::ops {
namespace {

using kernels::norm::Moments;

// What is worth another core, and what stays in its cache for the second pass.
constexpr std::int64_t kElementsOfBlock = 32768;

/// Where variances and means go.
struct Results {
  kernels::norm::Numbers variance, mean;
  double correction;
  bool root;

  void write(std::int64_t index, const Moments& of) const noexcept {
    const double found = of.squares / (of.count - correction);
    variance.write(index, root ? std::sqrt(found) : found);
    mean.write(index, of.mean);
  }
};

/// Each channel is a row: a block is some of them, or a part of one.
template <class T>
void of_rows(Grid& grid, const T* from, ChannelLayout layout, const Results& to) {
  const std::int64_t parts = ceil_div(layout.inner, kElementsOfBlock);
  if (parts == 1) {
    const std::int64_t each = std::max<std::int64_t>(kElementsOfBlock / layout.inner, 1);
    grid.run_by_any(ceil_div(layout.channels, each), [&](std::int64_t block) {
      const std::int64_t end = std::min(layout.channels, (block + 1) * each);
      for (std::int64_t row = block * each; row < end; ++row) {
        to.write(row, kernels::norm::moments(from + row * layout.inner, layout.inner));
      }
    });
    return;
  }
  const std::int64_t length = ceil_div(layout.inner, parts);
  std::vector<Moments> found(static_cast<std::size_t>(layout.channels * parts));
  grid.run_by_any(layout.channels * parts, [&](std::int64_t block) {
    const std::int64_t begin = block % parts * length;
    found[static_cast<std::size_t>(block)] = kernels::norm::moments(
        from + block / parts * layout.inner + begin, std::min(length, layout.inner - begin));
  });
  for (std::int64_t row = 0; row < layout.channels; ++row) {
    Moments all;
    for (std::int64_t part = 0; part < parts; ++part) {
      all = merged(all, found[static_cast<std::size_t>(row * parts + part)]);
    }
    to.write(row, all);
  }
}

/// Channels whose elements lie in several places.
void of_channels(Grid& grid, const at::Tensor& input, ChannelLayout layout, const Results& to) {
  const ChannelMoments moments = channel_moments(grid, input, layout, WideMoments::kBySteps, 0);
  const auto count = static_cast<double>(layout.count());
  const std::int64_t each = std::max<std::int64_t>(kElementsOfBlock / layout.count(), 1);
  grid.run_by_any(ceil_div(layout.channels, each), [&](std::int64_t block) {
    const std::int64_t end = std::min(layout.channels, (block + 1) * each);
    for (std::int64_t channel = block * each; channel < end; ++channel) {
      const auto index = static_cast<std::size_t>(channel);
      to.write(channel, Moments{count, moments.mean[index], moments.square_sum[index]});
    }
  });
}

void variances(Grid& grid, const TensorRef& variance, const TensorRef& mean, const TensorRef& input,
               ChannelLayout layout, double correction, bool root) {
  const Results to{row_numbers(variance), row_numbers(mean), correction, root};
  with_row_element(input.dtype(), [&]<class T>() {
    if (layout.outer == 1) {
      of_rows(grid, reinterpret_cast<const T*>(input.data()), layout, to);
    } else {
      of_channels(grid, input.alias(), layout, to);
    }
  });
}

/// One after the other in memory, in the order of the channels.
bool takes(const at::Tensor& result, const at::Tensor& input) {
  if (!result.defined()) return true;
  return result.is_contiguous() &&
         (result.scalar_type() == input.scalar_type() || result.scalar_type() == c10::kFloat);
}

}  // namespace

bool launch_variances(const char* name, const at::Tensor& variance, const at::Tensor& mean,
                      const at::Tensor& input, Reduced reduced, double correction, bool root) {
  if (!is_row_element(input.scalar_type()) || input.numel() == 0 || input.is_neg() ||
      !takes(variance, input) || !takes(mean, input)) {
    return false;
  }
  const auto layout = channel_layout_of(input, reduced);
  // Of fewer elements than `correction` ATen has something to say.
  if (!layout || !(correction < static_cast<double>(layout->count()))) return false;
  launch(name, Custom{}, variances, out(variance), out(mean), input, *layout, correction, root);
  return true;
}

}  // namespace loom::ops
