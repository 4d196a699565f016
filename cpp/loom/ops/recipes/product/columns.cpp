// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/columns.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>

namespace loom::ops {
namespace {

using kernels::conv::add_rows;
using kernels::conv::make_rows;
using kernels::conv::TapRows;
using Piece = Columns::Piece;

// Which of `count` pixels, the first at `position`, are within [0, size): [first, last).
struct Range {
  std::int64_t first, last;
};
Range inside(std::int64_t position, std::int64_t stride, std::int64_t size, std::int64_t count) {
  const std::int64_t first = position >= 0 ? 0 : (-position + stride - 1) / stride;
  const std::int64_t last = position >= size ? 0 : (size - 1 - position) / stride + 1;
  return {std::min(first, count), std::clamp<std::int64_t>(last, std::min(first, count), count)};
}

/// Neighbours in a row of the result.
struct ResultRun {
  std::int64_t image, row, x, column, count;
};

std::vector<ResultRun> result_runs(const Windows& windows, std::int64_t first_pixel,
                                   std::int64_t pixels) {
  std::vector<ResultRun> runs;
  const std::int64_t width = windows.x.result;
  runs.reserve(static_cast<std::size_t>(pixels / width + 2));
  for_each_image(windows, first_pixel, pixels, [&](const ImageRun& run) {
    std::int64_t row = run.pixel / width, x = run.pixel % width;
    for (std::int64_t done = 0; done < run.count; ++row, x = 0) {
      const std::int64_t count = std::min(width - x, run.count - done);
      runs.push_back({run.image, row, x, run.column + done, count});
      done += count;
    }
  });
  return runs;
}

}  // namespace

Columns::Columns(const Windows& windows, std::int64_t first_pixel, std::int64_t pixels)
    : pixels_(pixels),
      channels_(windows.channels),
      plane_(windows.plane()),
      last_(windows.channels_last),
      step_(windows.x.stride * (last_ ? channels_ : 1)) {
  const WindowAxis &ys = windows.y, &xs = windows.x;
  const std::int64_t pixel_step = last_ ? channels_ : 1;
  const std::vector<ResultRun> runs = result_runs(windows, first_pixel, pixels);
  // The same for all taps of a column of the window.
  std::vector<Range> ranges;
  ranges.reserve(static_cast<std::size_t>(xs.kernel) * runs.size());
  for (std::int64_t k = 0; k < xs.kernel; ++k) {
    const std::int64_t dx = k * xs.dilation - xs.padding;
    for (const ResultRun& run : runs) {
      ranges.push_back(inside(run.x * xs.stride + dx, xs.stride, xs.size, run.count));
    }
  }
  taps_.reserve(static_cast<std::size_t>(windows.taps()));
  pieces_.reserve(static_cast<std::size_t>(windows.taps()) * runs.size());
  for (std::int64_t tap = 0; tap < windows.taps(); ++tap) {
    const std::int64_t dy = tap / xs.kernel * ys.dilation - ys.padding;
    const std::int64_t dx = tap % xs.kernel * xs.dilation - xs.padding;
    const Range* range = ranges.data() + static_cast<std::size_t>(tap % xs.kernel) * runs.size();
    const std::size_t begin = pieces_.size();
    std::int64_t seen = 0;
    for (const ResultRun& run : runs) {
      const auto [first, last] = *range++;
      const std::int64_t y = run.row * ys.stride + dy;
      if (y < 0 || y >= ys.size || first == last) continue;
      const std::int64_t at = y * xs.size + (run.x + first) * xs.stride + dx;
      const Piece piece{run.image * channels_ * plane_ + at * pixel_step, run.column + first,
                        last - first};
      seen += piece.count;
      Piece* before = pieces_.size() > begin ? &pieces_.back() : nullptr;
      if (before != nullptr && before->column + before->count == piece.column &&
          before->image + before->count * step_ == piece.image) {
        before->count += piece.count;
      } else {
        pieces_.push_back(piece);
      }
    }
    taps_.push_back({begin, pieces_.size(), seen == pixels});
  }
}

template <class Function>
void Columns::for_each_tap(std::int64_t first_row, std::int64_t rows, Function&& function) const {
  const auto taps = static_cast<std::int64_t>(taps_.size());
  // The first rows are of as many taps as there are: each of them goes on in the next channels.
  for (std::int64_t row = 0; row < std::min(taps, rows); ++row) {
    const std::int64_t at = first_row + row;
    const Tap& tap = taps_[static_cast<std::size_t>(at % taps)];
    const TapRows made{.channels = ceil_div(rows - row, taps),
                       .image_step = plane_,
                       .column_step = 0,
                       .pieces = pieces_.data() + tap.begin,
                       .count = static_cast<std::int64_t>(tap.end - tap.begin),
                       .zeros = tap.whole ? 0 : pixels_,
                       .step = step_};
    function(made, row, at / taps * plane_, taps);
  }
}

void Columns::make(const float* images, std::int64_t first_row, std::int64_t rows, float* to,
                   std::int64_t ld) const {
  if (last_) return make_last(images, first_row, rows, to, ld);
  for_each_tap(first_row, rows,
               [&](TapRows tap, std::int64_t row, std::int64_t channel, std::int64_t taps) {
                 tap.column_step = taps * ld;
                 make_rows(images + channel, tap, to + row * ld);
               });
}

// A tap's channels of a pixel lie together: they are turned.
void Columns::make_last(const float* images, std::int64_t first_row, std::int64_t rows, float* to,
                        std::int64_t ld) const {
  for (std::int64_t row = 0; row < rows;) {
    const Tap& tap = taps_[static_cast<std::size_t>((first_row + row) / channels_)];
    const std::int64_t channel = (first_row + row) % channels_;
    const std::int64_t count = std::min(channels_ - channel, rows - row);
    for (std::int64_t i = 0; !tap.whole && i < count; ++i) {
      std::fill_n(to + (row + i) * ld, pixels_, 0.F);
    }
    for (std::size_t i = tap.begin; i < tap.end; ++i) {
      const Piece& piece = pieces_[i];
      transpose(piece.count, count, images + piece.image + channel, step_,
                to + row * ld + piece.column, ld);
    }
    row += count;
  }
}

void Columns::add(const float* columns, std::int64_t ld, std::int64_t first_row, std::int64_t rows,
                  float* images) const {
  for_each_tap(first_row, rows,
               [&](TapRows tap, std::int64_t row, std::int64_t channel, std::int64_t taps) {
                 tap.column_step = taps * ld;
                 add_rows(columns + row * ld, tap, images + channel);
               });
}

}  // namespace loom::ops
