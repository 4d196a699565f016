// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sums over all samples and places of each channel: what batch norm needs to know of its input, and
// the gradients of biases. The order of a sum follows from the shape and the instruction set alone.
// T: float or a half type. Thread: any, each with channels or rows and a room of its own.

#include "loom/kernels/row_pitch.h"
#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::norm {

/// How the elements of a dense tensor are spread over channels: `outer` times, each channel has
/// `inner` elements together; inner is 1 for channels last.
struct ChannelLayout {
  std::int64_t outer, channels, inner;
  /// Of channels last: how often all channels follow each other in a row of factors.
  std::int64_t tiles = 1;

  [[nodiscard]] std::int64_t count() const noexcept { return outer * inner; }
  /// Where channels have fewer elements together, rows of all channels are added to each other.
  static constexpr std::int64_t kShortestRun = 64;
  [[nodiscard]] bool has_short_runs() const noexcept { return inner > 1 && inner < kShortestRun; }
  /// How often each channel's factor stands in a row of factors: once for each element of a short
  /// run, or for each tile.
  [[nodiscard]] std::int64_t repeats() const noexcept { return has_short_runs() ? inner : tiles; }
};

struct Range {
  std::int64_t begin, end;

  [[nodiscard]] std::int64_t length() const noexcept { return end - begin; }
};

// Channels that have several elements together: inner > 1. What is computed is written for the
// channels [begin, end) of arrays that have all of them.

/// Floats of room that moments and gradients of so many channels need.
[[nodiscard]] inline std::int64_t room_of_channels(ChannelLayout layout, Range channels) noexcept {
  return layout.has_short_runs() ? 3 * row_pitch(channels.length() * layout.inner) : 0;
}

template <class T>
void channel_sums(const T* from, ChannelLayout layout, Range channels, double* sums) noexcept;

/// The mean, and the sum of the squares of the distances from it.
template <class T>
void channel_moments(const T* from, ChannelLayout layout, Range channels, float* room, double* mean,
                     double* square_sum) noexcept;

/// Of grad, and of grad * (from - mean).
template <class T>
void channel_gradients(const T* grad, const T* from, ChannelLayout layout, Range channels,
                       const float* mean, float* room, double* sum, double* product) noexcept;

/// Rows with an element of each channel (inner == 1), `stride` elements apart, and the channels
/// that a block has of them. Arrays have numbers of all channels.
struct RowBlock {
  Range rows, channels;
  std::int64_t stride;
};

// Adds to sums of the block's channels. Room: a float for each sum.

template <class T>
void add_sums_of_rows(const T* from, const RowBlock& block, float* room, double* sums) noexcept;

/// Of from - shift, and of the squares of that.
template <class T>
void add_moments_of_rows(const T* from, const float* shift, const RowBlock& block, float* room,
                         double* sums, double* squares) noexcept;

/// Of grad, and of grad * (from - mean).
template <class T>
void add_gradients_of_rows(const T* grad, const T* from, const float* mean, const RowBlock& block,
                           float* room, double* sums, double* products) noexcept;

/// Elements of a channel are near this: their sum's square and the sum of their squares, less it,
/// are not near each other. The mean of a few rows, or 0. Room: a row.
template <class T>
void find_shift(const T* from, ChannelLayout layout, float* room, float* shift) noexcept;

/// From the sums of add_moments_of_rows(), in place, the mean and the sum of the squares of the
/// distances from it.
void finish_moments(ChannelLayout layout, const float* shift, double* mean,
                    double* square_sum) noexcept;

/// to[i] = from[i] / divisor, rounded to float32 and then to an element.
template <class T>
void store_quotients(const double* from, double divisor, std::int64_t count, T* to) noexcept;

}  // namespace loom::kernels::norm
