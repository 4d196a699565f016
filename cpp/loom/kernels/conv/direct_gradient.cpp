// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/direct_gradient.h"

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/conv/mending.h"

#include <algorithm>
#include <cmath>

namespace loom::kernels::conv {
namespace {

using simd::BFloat16;

const Scratch t_gradient, t_images;

/// The pixels [begin, end) of a row or column of the result whose window has an element of the
/// image at a tap, and the element that the first of them has there.
struct Seen {
  std::int64_t begin, end, first;
};

Seen seen_through(const WindowAxis& axis, std::int64_t tap) {
  const std::int64_t offset = tap * axis.dilation - axis.padding;
  const std::int64_t begin = std::max<std::int64_t>(ceil_div(-offset, axis.stride), 0);
  const std::int64_t last = axis.size - 1 - offset;
  const std::int64_t end = last < 0 ? 0 : std::min(last / axis.stride + 1, axis.result);
  return {begin, std::max(begin, end), begin * axis.stride + offset};
}

/// One channel of all images, as planes.
template <class T>
const float* take_planes(const T* from, std::int64_t images, std::int64_t plane,
                         std::int64_t channels, std::int64_t channel, bool last,
                         const Scratch& scratch) {
  float* to = scratch.get<float>(images * plane);
  for (std::int64_t image = 0; image < images; ++image) {
    const T* at = from + image * channels * plane + channel * (last ? 1 : plane);
    for (std::int64_t i = 0; i < plane; ++i) {
      to[image * plane + i] = simd::widen(at[i * (last ? channels : 1)]);
    }
  }
  return to;
}

double sum_over_pixels(const Windows& w, const float* gradient, const float* images,
                       std::int64_t tap) {
  const Seen y = seen_through(w.y, tap / w.x.kernel), x = seen_through(w.x, tap % w.x.kernel);
  double sum = 0;
  for (std::int64_t image = 0; image < w.images; ++image) {
    const float* made = gradient + image * w.result_plane() + x.begin;
    const float* seen = images + image * w.plane() + x.first;
    for (std::int64_t row = y.begin; row < y.end; ++row) {
      const std::int64_t seen_row = y.first + (row - y.begin) * w.y.stride;
      sum += exact_dot(made + row * w.x.result, seen + seen_row * w.x.size, x.end - x.begin,
                       w.x.stride);
    }
  }
  return sum;
}

template <class T>
T* taps_of(const DirectWeightGradient<T>& p, std::int64_t filter, std::int64_t channel,
           std::int64_t tap) {
  const std::int64_t taps = p.windows.taps(), channels = p.windows.channels;
  return p.result + (p.weights_last ? (filter * taps + tap) * channels + channel
                                    : (filter * channels + channel) * taps + tap);
}

}  // namespace

template <class T>
void DirectWeightGradient<T>::mend(std::int64_t filter) const {
  const Windows& w = windows;
  if (all_finite<T>(result + filter * w.rows(), w.rows())) return;
  const float* of_result = take_planes(gradient, w.images, w.result_plane(), filters, filter,
                                       w.channels_last, t_gradient);
  for (std::int64_t c = 0; c < w.channels; ++c) {
    const float* of_images = nullptr;
    for (std::int64_t tap = 0; tap < w.taps(); ++tap) {
      T& to = *taps_of(*this, filter, c, tap);
      if (std::isfinite(simd::widen(to))) continue;
      if (of_images == nullptr) {
        of_images =
            take_planes(images, w.images, w.plane(), w.channels, c, w.channels_last, t_images);
      }
      simd::round_to(to, static_cast<float>(sum_over_pixels(w, of_result, of_images, tap)));
    }
  }
}

template <class T>
std::int64_t DirectWeightGradient<T>::spoilt() const {
  const std::int64_t count = filters * windows.rows();
  if (all_finite<T>(result, count)) return 0;
  return std::count_if(result, result + count,
                       [](T value) { return !std::isfinite(simd::widen(value)); });
}

template struct DirectWeightGradient<float>;
template struct DirectWeightGradient<BFloat16>;

}  // namespace loom::kernels::conv
