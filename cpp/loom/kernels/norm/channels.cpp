// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/channels.h"

#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/norm/sums.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace loom::kernels::norm {
namespace {

// So many rows are added to each other in float, and such sums in double.
constexpr std::int64_t kRowsOfSum = 16;
// Rows that are a power of two apart are all in one set of the L1 cache, which has 8 ways.
constexpr std::int64_t kRowsAtOnce = 8;

/// Some channels with short runs: their elements in a row, and two sums for each of these.
class ShortRuns {
 public:
  ShortRuns(ChannelLayout layout, Range channels, float* room)
      : layout_(layout), channels_(channels), room_(room) {}

  [[nodiscard]] std::int64_t columns() const { return channels_.length() * layout_.inner; }
  /// Of each element its channel's.
  [[nodiscard]] const float* shift() const { return room_ + 2 * row_pitch(columns()); }
  template <class Number>
  void set_shift(const Number* of_channel) {
    float* to = room_ + 2 * row_pitch(columns());
    for (std::int64_t c = channels_.begin; c < channels_.end; ++c, to += layout_.inner) {
      std::fill_n(to, layout_.inner, static_cast<float>(of_channel[c]));
    }
  }
  /// add(begin, first, second) adds the elements that begin there to sums; these are added to the
  /// channels' in double, a few rows at a time.
  template <class Add>
  void add_rows(double* first, double* second, Add add) {
    float *const one = room_, *const two = room_ + row_pitch(columns());
    for (std::int64_t row = 0; row < layout_.outer;) {
      std::fill_n(room_, 2 * row_pitch(columns()), 0.0F);
      for (const std::int64_t end = std::min(layout_.outer, row + kRowsOfSum); row < end; ++row) {
        add((row * layout_.channels + channels_.begin) * layout_.inner, one, two);
      }
      for (std::int64_t c = channels_.begin, i = 0; c < channels_.end; ++c) {
        for (const std::int64_t end = i + layout_.inner; i < end; ++i) {
          first[c] += one[i];
          second[c] += two[i];
        }
      }
    }
  }

 private:
  ChannelLayout layout_;
  Range channels_;
  float* room_;
};

template <class T>
void short_moments(const T* from, ChannelLayout layout, Range channels, float* room, double* mean,
                   double* square_sum) noexcept {
  const auto count = static_cast<double>(layout.count());
  const auto add = add_moments<T>.of(simd_level());
  ShortRuns runs(layout, channels, room);
  // Of the distances from `mean`, which the sums take the place of.
  const auto measure = [&] {
    runs.set_shift(mean);
    std::fill(mean + channels.begin, mean + channels.end, 0.0);
    std::fill(square_sum + channels.begin, square_sum + channels.end, 0.0);
    runs.add_rows(mean, square_sum, [&](std::int64_t begin, float* sums, float* squares) {
      add(from + begin, 1, 0, runs.shift(), sums, squares, runs.columns());
    });
  };
  std::fill(mean + channels.begin, mean + channels.end, 0.0);
  measure();
  for (std::int64_t c = channels.begin; c < channels.end; ++c) {
    const auto shift = static_cast<float>(mean[c] / count);
    mean[c] = std::isfinite(shift) ? shift : 0;
  }
  measure();
  const float* shift = runs.shift();
  for (std::int64_t c = channels.begin; c < channels.end; ++c, shift += layout.inner) {
    square_sum[c] -= mean[c] * mean[c] / count;
    mean[c] = static_cast<double>(*shift) + mean[c] / count;
  }
}

/// add(row, rows) adds some rows to the sums in `room`, which are added to those in double.
template <class Add>
void add_rows_to(std::initializer_list<double*> sums, const RowBlock& block, float* room, Add add) {
  const std::int64_t length = block.channels.length();
  for (std::int64_t row = block.rows.begin; row < block.rows.end; row += kRowsOfSum) {
    std::fill_n(room, static_cast<std::int64_t>(sums.size()) * length, 0.0F);
    add(row, std::min(kRowsOfSum, block.rows.end - row));
    const float* part = room;
    for (double* const sum : sums) {
      add_to_doubles(sum + block.channels.begin, part, length);
      part += length;
    }
  }
}

}  // namespace

template <class T>
void channel_sums(const T* from, ChannelLayout layout, Range channels, double* sums) noexcept {
  for (std::int64_t c = channels.begin; c < channels.end; ++c) {
    sums[c] = sum_of_runs<T>(from + c * layout.inner, layout.outer, layout.channels * layout.inner,
                             layout.inner);
  }
}

template <class T>
void channel_moments(const T* from, ChannelLayout layout, Range channels, float* room, double* mean,
                     double* square_sum) noexcept {
  if (layout.has_short_runs()) {
    return short_moments(from, layout, channels, room, mean, square_sum);
  }
  channel_sums(from, layout, channels, mean);
  const auto count = static_cast<double>(layout.count());
  for (std::int64_t c = channels.begin; c < channels.end; ++c) {
    mean[c] /= count;
    const auto rounded = static_cast<float>(mean[c]);
    double sums[2];
    moment_sums_of_runs<T>(from + c * layout.inner, layout.outer, layout.channels * layout.inner,
                           layout.inner, rounded, sums);
    // An infinite mean has no distances.
    if (std::isfinite(sums[0])) mean[c] = static_cast<double>(rounded) + sums[0] / count;
    square_sum[c] = sums[1] - sums[0] * sums[0] / count;
  }
}

template <class T>
void channel_gradients(const T* grad, const T* from, ChannelLayout layout, Range channels,
                       const float* mean, float* room, double* sum, double* product) noexcept {
  if (layout.has_short_runs()) {
    const auto add = add_gradients<T>.of(simd_level());
    ShortRuns runs(layout, channels, room);
    runs.set_shift(mean);
    std::fill(sum + channels.begin, sum + channels.end, 0.0);
    std::fill(product + channels.begin, product + channels.end, 0.0);
    runs.add_rows(sum, product, [&](std::int64_t begin, float* sums, float* products) {
      add(grad + begin, from + begin, 1, 0, runs.shift(), sums, products, runs.columns());
    });
    return;
  }
  for (std::int64_t c = channels.begin; c < channels.end; ++c) {
    const std::int64_t begin = c * layout.inner;
    double sums[2];
    gradient_sums_of_runs<T>(grad + begin, from + begin, layout.outer,
                             layout.channels * layout.inner, layout.inner, mean[c], sums);
    sum[c] = sums[0];
    product[c] = sums[1];
  }
}

template <class T>
void add_sums_of_rows(const T* from, const RowBlock& block, float* room, double* sums) noexcept {
  const auto add = add_rows<T>.of(simd_level());
  add_rows_to({sums}, block, room, [&](std::int64_t row, std::int64_t rows) {
    const T* const first = from + row * block.stride + block.channels.begin;
    for (std::int64_t i = 0; i < rows; i += kRowsAtOnce) {
      add(first + i * block.stride, std::min(kRowsAtOnce, rows - i), block.stride, room,
          block.channels.length());
    }
  });
}

template <class T>
void add_moments_of_rows(const T* from, const float* shift, const RowBlock& block, float* room,
                         double* sums, double* squares) noexcept {
  const auto add = add_moments<T>.of(simd_level());
  const std::int64_t length = block.channels.length();
  add_rows_to({sums, squares}, block, room, [&](std::int64_t row, std::int64_t rows) {
    add(from + row * block.stride + block.channels.begin, rows, block.stride,
        shift + block.channels.begin, room, room + length, length);
  });
}

template <class T>
void add_gradients_of_rows(const T* grad, const T* from, const float* mean, const RowBlock& block,
                           float* room, double* sums, double* products) noexcept {
  const auto add = add_gradients<T>.of(simd_level());
  const std::int64_t length = block.channels.length();
  add_rows_to({sums, products}, block, room, [&](std::int64_t row, std::int64_t rows) {
    const std::int64_t first = row * block.stride + block.channels.begin;
    add(grad + first, from + first, rows, block.stride, mean + block.channels.begin, room,
        room + length, length);
  });
}

template <class T>
void find_shift(const T* from, ChannelLayout layout, float* room, float* shift) noexcept {
  const std::int64_t looks = std::min<std::int64_t>(layout.outer, 64);
  std::fill_n(shift, layout.channels, 0.0F);
  for (std::int64_t look = 0; look < looks; ++look) {
    const std::int64_t row = layout.outer * look / looks;
    widen_row<T>(room, from + row * layout.channels, layout.channels);
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      shift[c] += room[c] / static_cast<float>(looks);
    }
  }
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    shift[c] = std::isfinite(shift[c]) ? shift[c] : 0;
  }
}

void finish_moments(ChannelLayout layout, const float* shift, double* mean,
                    double* square_sum) noexcept {
  const auto count = static_cast<double>(layout.count());
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const double distance = mean[c] / count;
    // Keeps what is not a number.
    const double squares = square_sum[c] - distance * mean[c];
    square_sum[c] = squares < 0 ? 0 : squares;
    mean[c] = distance + static_cast<double>(shift[c]);
  }
}

template <class T>
void store_quotients(const double* from, double divisor, std::int64_t count, T* to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    simd::round_to(to[i], static_cast<float>(from[i] / divisor));
  }
}

#define LOOM_INSTANTIATE(T)                                                                       \
  template void channel_sums(const T*, ChannelLayout, Range, double*) noexcept;                   \
  template void channel_moments(const T*, ChannelLayout, Range, float*, double*,                  \
                                double*) noexcept;                                                \
  template void channel_gradients(const T*, const T*, ChannelLayout, Range, const float*, float*, \
                                  double*, double*) noexcept;                                     \
  template void add_sums_of_rows(const T*, const RowBlock&, float*, double*) noexcept;            \
  template void add_moments_of_rows(const T*, const float*, const RowBlock&, float*, double*,     \
                                    double*) noexcept;                                            \
  template void add_gradients_of_rows(const T*, const T*, const float*, const RowBlock&, float*,  \
                                      double*, double*) noexcept;                                 \
  template void find_shift(const T*, ChannelLayout, float*, float*) noexcept;                     \
  template void store_quotients(const double*, double, std::int64_t, T*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm
