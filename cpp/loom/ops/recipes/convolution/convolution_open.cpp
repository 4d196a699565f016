// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/convolution/convolution_open.h"

#include <algorithm>

namespace loom::ops {

void finish_block(const Grid& grid, const TensorRef& output, bool points, const ConvolutionCut& cut,
                  std::int64_t index) {
  const std::int64_t images = output.sizes()[0], channels = output.sizes()[1];
  const std::int64_t pixels = output.numel() / (images * channels);
  const std::int64_t first = index * cut.block, count = std::min(cut.block, cut.items - first);
  if (!cut.channels) {
    const std::int64_t rows = points ? pixels : channels;
    grid.finish(first * rows, count * rows, 0, points ? channels : pixels);
  } else if (points) {
    grid.finish(0, images * pixels, first, count);
  } else {
    for (std::int64_t i = 0; i < images; ++i) {
      grid.finish(i * channels + first, count, 0, pixels);
    }
  }
}

}  // namespace loom::ops
