// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/pixel_rows.h"

#include "loom/ops/recipes/product/multiply.h"

#include <algorithm>

namespace loom::ops {
namespace {

using c10::BFloat16;

// A block kernel adds up at least so many elements at a time, or windows are gathered.
constexpr std::int64_t kLeastRun = 32;

const Scratch t_rows;

}  // namespace

std::int64_t PixelProblem::run() const noexcept {
  return (windows.x.dilation == 1 ? windows.x.kernel : 1) * (by_channels ? 1 : channels());
}

bool PixelProblem::gathers() const noexcept {
  return by_channels || run() % 2 != 0 || run() < kLeastRun || windows.x.result < kShortestPixelRow;
}

ImageRows::ImageRows(const PixelProblem& p, std::int64_t image, std::int64_t first,
                     std::int64_t count, PixelRun pixels)
    : p_(p),
      image_(p.images + image * p.channels() * p.windows.plane()),
      first_(first),
      count_(count),
      row_elements_(p.windows.x.seen() * p.channels()),
      before_(pixels.first * p.windows.x.stride),
      seen_(p.windows.x.seen() - (p.windows.x.result - pixels.count) * p.windows.x.stride),
      begin_(std::clamp<std::int64_t>(p.windows.x.inside_begin() - before_, 0, seen_)),
      end_(std::clamp(p.windows.x.inside_end() - before_, begin_, seen_)),
      to_(t_rows.get<BFloat16>(count * row_elements_)) {}

void ImageRows::make(std::int64_t end) {
  for (; made_ < end; ++made_) {
    BFloat16* row = to_ + made_ * row_elements_;
    p_.by_channels ? make_channels(row, is_inside(made_)) : make_pixels(row, is_inside(made_));
  }
  for (; fetched_ < std::min(end + p_.windows.y.stride, count_); ++fetched_) {
    if (fetched_ >= made_ && is_inside(fetched_)) fetch(fetched_);
  }
}

/// Whether the image has some of a row.
bool ImageRows::is_inside(std::int64_t row) const noexcept {
  return first_ + row >= 0 && first_ + row < p_.windows.y.size && begin_ < end_;
}

/// The first channel of what the image has of a row.
const BFloat16* ImageRows::source(std::int64_t row) const noexcept {
  const WindowAxis& x = p_.windows.x;
  const std::int64_t pixel = (first_ + row) * x.size + before_ + begin_ - x.padding;
  return image_ + (p_.last() ? pixel * p_.channels() : pixel);
}

void ImageRows::make_pixels(BFloat16* row, bool inside) const {
  const std::int64_t channels = p_.channels();
  if (!inside) {
    std::fill_n(row, seen_ * channels, BFloat16(0.F));
    return;
  }
  BFloat16 *to = row + begin_ * channels, *end = row + end_ * channels;
  std::fill(row, to, BFloat16(0.F));
  if (p_.last()) {
    std::copy_n(source(made_), end - to, to);
  } else {
    transpose(channels, end_ - begin_, bits(source(made_)), p_.windows.plane(), bits(to), channels);
  }
  std::fill(end, row + seen_ * channels, BFloat16(0.F));
}

void ImageRows::make_channels(BFloat16* row, bool inside) const {
  if (!inside) {
    std::fill_n(row, row_elements_, BFloat16(0.F));
    return;
  }
  const BFloat16* from = source(made_);
  for (std::int64_t c = 0; c < p_.channels();
       ++c, from += p_.windows.plane(), row += p_.windows.x.seen()) {
    std::fill_n(row, begin_, BFloat16(0.F));
    std::copy_n(from, end_ - begin_, row + begin_);
    std::fill(row + end_, row + seen_, BFloat16(0.F));
  }
}

void ImageRows::fetch(std::int64_t row) const {
  if (p_.last()) return prefetch_lines<false>(source(row), (end_ - begin_) * p_.channels());
  for (std::int64_t c = 0; c < p_.channels(); ++c) {
    prefetch_lines<false>(source(row) + c * p_.windows.plane(), end_ - begin_);
  }
}

std::vector<RowPiece> window_pieces(const PixelProblem& p) {
  const WindowAxis &y = p.windows.y, &x = p.windows.x;
  const std::int64_t run = p.run(), all = p.windows.rows();
  const std::int64_t runs = x.dilation == 1 ? 1 : x.kernel;  // of a row of the window
  const std::int64_t row = x.seen() * p.channels(), pixel = p.pixel_step();
  std::vector<RowPiece> pieces;
  for (std::int64_t at = 0; at < all;) {
    const std::int64_t index = at / run, lane = at % kVectorElements;
    const std::int64_t end = std::min((index + 1) * run, at - lane + kVectorElements);
    const std::int64_t line = index / runs, channel = line / y.kernel;  // 0 but for by_channels
    const std::int64_t offset =
        line % y.kernel * y.dilation * row + channel * x.seen() + index % runs * x.dilation * pixel;
    const std::uint32_t elements = (~std::uint32_t{0} >> (kVectorElements - (end - at))) << lane;
    pieces.push_back(
        {offset + at % run - lane, elements, end % kVectorElements == 0 || end == all});
    at = end;
  }
  return pieces;
}

}  // namespace loom::ops
