// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The columns of a convolution: what each pixel of its result sees of the images, as a matrix with
// a row for each channel and tap of the window, and a column for each pixel (im2col and col2im).
// They are made piece by piece, where a product is about to read them. Thread: any; a Columns is
// not changed by its use.

#include "loom/kernels/conv/tap_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace loom::ops {

/// One direction of a two-dimensional convolution.
struct WindowAxis {
  std::int64_t size = 1, result = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;

  /// What the windows of a row of the result see, with padding; of it the image has
  /// [inside_begin(), inside_end()).
  [[nodiscard]] std::int64_t seen() const noexcept {
    return (result - 1) * stride + (kernel - 1) * dilation + 1;
  }
  [[nodiscard]] std::int64_t inside_begin() const noexcept { return std::min(padding, seen()); }
  [[nodiscard]] std::int64_t inside_end() const noexcept {
    return std::clamp(size + padding, inside_begin(), seen());
  }
  [[nodiscard]] bool padded() const noexcept { return inside_begin() > 0 || inside_end() < seen(); }
};

/// What the windows of a convolution see. Images are dense: image, channel, y, x; or, in
/// channels_last, image, y, x, channel.
struct Windows {
  std::int64_t images = 1, channels = 1;
  WindowAxis y, x;
  bool channels_last = false;

  [[nodiscard]] std::int64_t taps() const noexcept { return y.kernel * x.kernel; }
  [[nodiscard]] std::int64_t rows() const noexcept { return channels * taps(); }
  [[nodiscard]] std::int64_t plane() const noexcept { return y.size * x.size; }
  /// Pixels of the result, of one image and of all.
  [[nodiscard]] std::int64_t result_plane() const noexcept { return y.result * x.result; }
  [[nodiscard]] std::int64_t pixels() const noexcept { return images * result_plane(); }
};

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

/// The part of some pixels that is one image's: `pixel` is counted within the image, `column`
/// within the range.
struct ImageRun {
  std::int64_t image, pixel, column, count;
};

/// Calls function(ImageRun) for each image that pixels [first, first + count) are of.
template <class Function>
void for_each_image(const Windows& windows, std::int64_t first, std::int64_t count,
                    Function&& function) {
  const std::int64_t plane = windows.result_plane();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t pixel = (first + done) % plane;
    const std::int64_t length = count - done < plane - pixel ? count - done : plane - pixel;
    function(ImageRun{(first + done) / plane, pixel, done, length});
    done += length;
  }
}

}  // namespace loom::ops
