// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a two-dimensional convolution is: which pixels of its images those of its result see.

#include <algorithm>
#include <cstdint>

namespace loom::kernels::conv {

/// One direction of a two-dimensional convolution.
struct WindowAxis {
  std::int64_t size = 1, result = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;

  /// What the windows of a row of the result see, with padding; of it the image has
  /// [inside_begin(), inside_end()).
  [[nodiscard]] std::int64_t seen() const noexcept {
    return (result - 1) * stride + (kernel - 1) * dilation + 1;
  }
  [[nodiscard]] std::int64_t inside_begin() const noexcept {
    return std::clamp<std::int64_t>(padding, 0, seen());
  }
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

}  // namespace loom::kernels::conv
