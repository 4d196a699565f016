// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Average and maximum pooling over windows in one to three dimensions, and the gradient of the
// first, of planes (or volumes) of elements, or of rows with an element of each channel (channels
// last). What a call computes is a range of rows of one sample's result, or of its gradient. T:
// float, double, simd::BFloat16, simd::Half. Thread: any, each with a room of its own.

#include "loom/kernels/pool_resample/pool_rows.h"

#include <cstdint>
#include <vector>

namespace loom::kernels::pool_resample {

/// The windows along one dimension.
struct WindowAxis {
  std::int64_t from = 1, to = 1;  ///< elements of the input and of the result
  /// Of windows that are all alike, else 0: the first one begins `padding` before the input.
  std::int64_t kernel = 0;
  std::int64_t stride = 1, padding = 0, dilation = 1;
  std::vector<std::int32_t> begin, end;              ///< of each result, inside the input
  std::vector<std::int32_t> cover_begin, cover_end;  ///< of each element, results that see it
  std::vector<double> count;  ///< of each result, elements that an average is divided by

  /// All alike; an element counts as part of an average unless it is one of the padding that does
  /// not (`counts_padding`).
  [[nodiscard]] static WindowAxis regular(std::int64_t from, std::int64_t to, std::int64_t kernel,
                                          std::int64_t stride, std::int64_t padding,
                                          std::int64_t dilation, bool counts_padding);
  /// As many as the result has elements, as equally long as can be.
  [[nodiscard]] static WindowAxis adaptive(std::int64_t from, std::int64_t to);

 private:
  void find_cover();
};

struct Windows {
  WindowAxis depth, rows, columns;
  std::int64_t channels = 1;  ///< that lie beside each other: more than 1, or `last`
  bool last = false;          ///< channels last
  double divisor = 0;         ///< of all averages, unless 0

  /// Of a sample's result and its input; a row has all columns (of all channels).
  [[nodiscard]] std::int64_t result_rows() const noexcept { return depth.to * rows.to; }
  [[nodiscard]] std::int64_t input_rows() const noexcept { return depth.from * rows.from; }
  [[nodiscard]] std::int64_t result_row() const noexcept { return columns.to * channels; }
  [[nodiscard]] std::int64_t input_row() const noexcept { return columns.from * channels; }
  /// Numbers (WideOf<T>) of room.
  [[nodiscard]] std::int64_t room() const noexcept;
};

/// Some of the channels that lie beside each other: of planes all.
struct Channels {
  std::int64_t first, count;
};

/// Row `row` of the result of a sample, or of its input's gradient.
template <class T>
void average_row(const Windows& windows, std::int64_t row, const Channels& part, const T* from,
                 WideOf<T>* room, T* to) noexcept;
template <class T>
void average_gradient_row(const Windows& windows, std::int64_t row, const T* grad, WideOf<T>* room,
                          T* to) noexcept;

/// Places are in a sample's plane or volume, of one channel; none are wanted if `places` is null.
template <class T>
void largest_row(const Windows& windows, std::int64_t row, const T* from, WideOf<T>* room, T* to,
                 std::int64_t* places) noexcept;

}  // namespace loom::kernels::pool_resample
