// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The columns of a convolution: what each pixel of its result sees of the images, as a matrix with
// a row for each channel and tap of the window, and a column for each pixel (im2col and col2im).
// They are made piece by piece, where a product is about to read them. Thread: any; a Columns is
// not changed by its use.

#include "loom/kernels/conv/direct.h"
#include "loom/kernels/conv/tap_rows.h"

#include <cstdint>
#include <vector>

namespace loom::ops {

using kernels::conv::Convolution;
using kernels::conv::for_each_image;
using kernels::conv::ImageRun;
using kernels::conv::WindowAxis;
using kernels::conv::Windows;

/// The columns of some pixels of the result, which are counted through all images. Their rows are
/// in the order in which a filter's weights lie: channels of taps, in channels_last taps of
/// channels.
class Columns {
 public:
  Columns(const Windows& windows, std::int64_t first_pixel, std::int64_t pixels);

  [[nodiscard]] std::int64_t pixels() const noexcept { return pixels_; }
  /// to[r * ld + p] = what pixel first_pixel + p sees as row first_row + r, 0 beside the image.
  void make(const float* images, std::int64_t first_row, std::int64_t rows, float* to,
            std::int64_t ld) const;
  /// Adds columns to where make() would have taken them from. Requires: not channels_last.
  void add(const float* columns, std::int64_t ld, std::int64_t first_row, std::int64_t rows,
           float* images) const;

  using Piece = kernels::conv::Piece;

 private:
  struct Tap {
    std::size_t begin, end;
    bool whole;  ///< no pixel sees anything beside the image
  };
  void make_last(const float* images, std::int64_t first_row, std::int64_t rows, float* to,
                 std::int64_t ld) const;
  template <class Function>
  void for_each_tap(std::int64_t first_row, std::int64_t rows, Function&& function) const;

  std::int64_t pixels_, channels_, plane_;
  bool last_;
  std::int64_t step_;  // from one pixel's element of an image to the next one's
  std::vector<Piece> pieces_;
  std::vector<Tap> taps_;
};

}  // namespace loom::ops
