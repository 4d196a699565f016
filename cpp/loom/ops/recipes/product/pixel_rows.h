// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What products whose rows are pixels are made of: the problem, and rows of its images put so that
// what a pixel sees of them is in few pieces. Thread: any; an ImageRows is one thread's.

#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/bfloat16.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/columns.h"

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <vector>

namespace loom::ops {

using kernels::gemm::kVectorElements;
using kernels::gemm::RowPiece;

/// Windows of shorter rows are gathered: several rows make a tile.
inline constexpr std::int64_t kShortestPixelRow = 14;

/// A convolution of bfloat16 (convolve_pixels.h).
struct PixelProblem {
  c10::BFloat16* result;
  const c10::BFloat16 *images, *weights, *bias;
  std::int64_t filters;
  bool weights_last;  ///< the channels of a tap are side by side
  Windows windows;
  /// Windows are put together channel by channel, as weights lie that are not `weights_last`.
  bool by_channels = false;

  [[nodiscard]] Convolution<simd::BFloat16> direct(bool turned) const noexcept {
    return {stored(result), stored(images), stored(weights), stored(bias),
            filters,        turned,         weights_last,    windows};
  }
  [[nodiscard]] std::int64_t channels() const noexcept { return windows.channels; }
  /// Images and result are in channels_last.
  [[nodiscard]] bool last() const noexcept { return windows.channels_last; }
  /// From one pixel to the next in what ImageRows makes, in elements.
  [[nodiscard]] std::int64_t pixel_step() const noexcept { return by_channels ? 1 : channels(); }
  /// Elements side by side that a pixel of the result sees of one row.
  [[nodiscard]] std::int64_t run() const noexcept;
  /// Whether windows are copied together.
  [[nodiscard]] bool gathers() const noexcept;
  /// Elements of a window, and one more if that is an odd number: pairs are multiplied.
  [[nodiscard]] std::int64_t inner() const noexcept { return (windows.rows() + 1) / 2 * 2; }
  /// From one gathered window to the next.
  [[nodiscard]] std::int64_t gathered_step() const noexcept {
    return round_up(inner(), kVectorElements);
  }
  /// A filter of a pixel of an image's result.
  [[nodiscard]] c10::BFloat16* result_at(std::int64_t image, std::int64_t pixel,
                                         std::int64_t filter) const noexcept {
    const std::int64_t plane = windows.result_plane();
    return result + (last() ? (image * plane + pixel) * filters + filter
                            : (image * filters + filter) * plane + pixel);
  }
};

/// Pixels of a row of the result.
struct PixelRun {
  std::int64_t first, count;
};

/// What some pixels of each row of the result see of rows of one image with their padding, in
/// memory of the thread: pixel by pixel with all channels, or, by_channels, channel by channel. One
/// at a time on a thread; the problem must stay. Requires: no negative padding.
class ImageRows {
 public:
  ImageRows(const PixelProblem& p, std::int64_t image, std::int64_t first, std::int64_t count,
            PixelRun pixels);

  /// Makes the rows before `end` that have not been made, and fetches those that come after.
  void make(std::int64_t end);
  /// Where the first channel of a pixel is, of those that are seen.
  [[nodiscard]] const c10::BFloat16* pixel(std::int64_t row, std::int64_t x) const noexcept {
    return to_ + row * row_elements_ + x * p_.pixel_step();
  }

 private:
  [[nodiscard]] bool is_inside(std::int64_t row) const noexcept;
  [[nodiscard]] const c10::BFloat16* source(std::int64_t row) const noexcept;
  void make_pixels(c10::BFloat16* row, bool inside) const;
  void make_channels(c10::BFloat16* row, bool inside) const;
  void fetch(std::int64_t row) const;

  const PixelProblem& p_;
  const c10::BFloat16* const image_;
  const std::int64_t first_, count_, row_elements_;
  const std::int64_t before_, seen_, begin_, end_;  ///< pixels of a row, with its padding
  c10::BFloat16* const to_;
  std::int64_t made_ = 0, fetched_ = 0;
};

/// A window as pieces of what ImageRows makes, from where its first pixel is.
[[nodiscard]] std::vector<RowPiece> window_pieces(const PixelProblem& p);

inline std::uint16_t* bits(c10::BFloat16* data) { return reinterpret_cast<std::uint16_t*>(data); }
inline const std::uint16_t* bits(const c10::BFloat16* data) {
  return reinterpret_cast<const std::uint16_t*>(data);
}

/// Lines of memory that are about to be written or read.
template <bool kWrites>
void prefetch_lines(const c10::BFloat16* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kVectorElements) __builtin_prefetch(from + i, kWrites);
  if (count > 0) __builtin_prefetch(from + count - 1, kWrites);
}

}  // namespace loom::ops
