// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/direct.h"

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/conv/mending.h"

#include <algorithm>
#include <cmath>

namespace loom::kernels::conv {
namespace {

using simd::BFloat16;

const Scratch t_window, t_inside, t_weights;

/// Some filters of single pixels. Windows and weights are put in one order, that of weights that
/// are not turned, when they are first needed.
template <class T>
class Mender {
 public:
  Mender(const Convolution<T>& p, Blocks::Range filters)
      : p_(p), filters_(filters), length_(round_up(p.windows.rows(), kMaskedStep)) {}

  void mend(std::int64_t image, std::int64_t pixel) {
    const std::int64_t plane = p_.windows.result_plane();
    bool taken = false;
    for (std::int64_t f = filters_.first; f < filters_.last; ++f) {
      T* at = p_.result + (p_.windows.channels_last ? (image * plane + pixel) * p_.filters + f
                                                    : (image * p_.filters + f) * plane + pixel);
      if (std::isfinite(simd::widen(*at))) continue;
      if (weights_ == nullptr) take_weights();
      if (!taken) take_window(image, pixel);
      taken = true;
      const float* weights = weights_ + (f - filters_.first) * length_;
      const float bias = p_.bias != nullptr ? simd::widen(p_.bias[f]) : 0.F;
      simd::round_to(*at, masked_dot(window_, weights, inside_, length_) + bias);
    }
  }

 private:
  void take_weights() {
    const std::int64_t channels = p_.windows.channels, taps = p_.windows.taps();
    const std::int64_t second = p_.turned ? p_.filters : channels;
    weights_ = t_weights.get<float>(filters_.count() * length_);
    for (std::int64_t f = filters_.first; f < filters_.last; ++f) {
      float* to = weights_ + (f - filters_.first) * length_;
      std::fill(to + channels * taps, to + length_, 0.F);
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t row = p_.turned ? c : f, column = p_.turned ? f : c;
        const T* from = p_.weights + row * second * taps + column * (p_.weights_last ? 1 : taps);
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t turned = p_.turned ? taps - 1 - tap : tap;
          to[place(c, tap)] = simd::widen(from[turned * (p_.weights_last ? second : 1)]);
        }
      }
    }
  }

  void take_window(std::int64_t image, std::int64_t pixel) {
    const WindowAxis &ys = p_.windows.y, &xs = p_.windows.x;
    const std::int64_t channels = p_.windows.channels, plane = p_.windows.plane();
    window_ = t_window.get<float>(length_);
    inside_ = t_inside.get<std::int32_t>(length_);
    std::fill_n(window_, length_, 0.F);
    std::fill_n(inside_, length_, 0);
    const std::int64_t top = pixel / xs.result * ys.stride - ys.padding;
    const std::int64_t left = pixel % xs.result * xs.stride - xs.padding;
    for (std::int64_t tap = 0; tap < p_.windows.taps(); ++tap) {
      const std::int64_t y = top + tap / xs.kernel * ys.dilation;
      const std::int64_t x = left + tap % xs.kernel * xs.dilation;
      if (y < 0 || y >= ys.size || x < 0 || x >= xs.size) continue;
      const std::int64_t step = p_.windows.channels_last ? 1 : plane;
      const T* from = p_.images + image * channels * plane +
                      (y * xs.size + x) * (p_.windows.channels_last ? channels : 1);
      for (std::int64_t c = 0; c < channels; ++c) {
        window_[place(c, tap)] = simd::widen(from[c * step]);
        inside_[place(c, tap)] = -1;
      }
    }
  }

  [[nodiscard]] std::int64_t place(std::int64_t channel, std::int64_t tap) const noexcept {
    return p_.weights_last ? tap * p_.windows.channels + channel
                           : channel * p_.windows.taps() + tap;
  }

  const Convolution<T>& p_;
  const Blocks::Range filters_;
  const std::int64_t length_;
  float *weights_ = nullptr, *window_ = nullptr;
  std::int32_t* inside_ = nullptr;
};

// Whether some pixels of an image are finite: rows of filters or planes are looked through.
template <class T>
bool is_finite(const Convolution<T>& p, const ImageRun& run, Blocks::Range filters) {
  const std::int64_t plane = p.windows.result_plane();
  const T* image = p.result + run.image * plane * p.filters;
  if (!p.windows.channels_last) {
    for (std::int64_t f = filters.first; f < filters.last; ++f) {
      if (!all_finite<T>(image + f * plane + run.pixel, run.count)) return false;
    }
    return true;
  }
  const T* pixel = image + run.pixel * p.filters;
  if (filters.count() == p.filters) return all_finite<T>(pixel, run.count * p.filters);
  for (std::int64_t i = 0; i < run.count; ++i, pixel += p.filters) {
    if (!all_finite<T>(pixel + filters.first, filters.count())) return false;
  }
  return true;
}

template <class T>
void mend_pixels(const Convolution<T>& p, Blocks::Range pixels, Blocks::Range filters,
                 Mender<T>& mender) {
  for_each_image(p.windows, pixels.first, pixels.count(), [&](const ImageRun& run) {
    if (is_finite(p, run, filters)) return;
    for (std::int64_t i = 0; i < run.count; ++i) mender.mend(run.image, run.pixel + i);
  });
}

/// Calls function(y, x, tap) for the taps of a pixel that see the plane at (y, x).
template <class Function>
void for_each_tap(const WindowAxis& ys, const WindowAxis& xs, std::int64_t row, std::int64_t column,
                  Function&& function) {
  for (std::int64_t tap = 0; tap < ys.kernel * xs.kernel; ++tap) {
    const std::int64_t y = row * ys.stride - ys.padding + tap / xs.kernel * ys.dilation;
    const std::int64_t x = column * xs.stride - xs.padding + tap % xs.kernel * xs.dilation;
    if (y >= 0 && y < ys.size && x >= 0 && x < xs.size) function(y, x, tap);
  }
}

}  // namespace

template <class T>
bool Convolution<T>::needs_mending() const {
  if (!windows.y.padded() && !windows.x.padded()) return false;
  return windows.rows() >= windows.pixels() || !all_finite<T>(weights, filters * windows.rows());
}

template <class T>
void Convolution<T>::mend(Blocks::Range pixels, Blocks::Range some) const {
  Mender<T> mender(*this, some);
  mend_pixels(*this, pixels, some, mender);
}

template <class T>
void Convolution<T>::mend_tiles(const Windows& tiles, std::int64_t side, Blocks::Range range,
                                Blocks::Range some) const {
  Mender<T> mender(*this, some);
  for (std::int64_t tile = range.first; tile < range.last; ++tile) {
    const std::int64_t image = tile / tiles.result_plane(), place = tile % tiles.result_plane();
    const std::int64_t top = place / tiles.x.result * side, x = place % tiles.x.result * side;
    const std::int64_t count = std::min(side, windows.x.result - x);
    for (std::int64_t y = top; y < std::min(top + side, windows.y.result); ++y) {
      const std::int64_t pixel = image * windows.result_plane() + y * windows.x.result + x;
      mend_pixels(*this, {pixel, pixel + count}, some, mender);
    }
  }
}

template <class From, class To>
void sum_plane(const WindowAxis& ys, const WindowAxis& xs, const From* plane, const float* weights,
               float bias, Blocks::Range rows, To* to, std::int64_t step) {
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    for (std::int64_t column = 0; column < xs.result; ++column) {
      float sum = bias;
      for_each_tap(ys, xs, row, column, [&](std::int64_t y, std::int64_t x, std::int64_t tap) {
        sum += weights[tap] * simd::widen(plane[y * xs.size + x]);
      });
      simd::round_to(to[row * step + column], sum);
    }
  }
}

template <class T>
void add_plane_taps(const WindowAxis& ys, const WindowAxis& xs, const T* plane, const T* gradient,
                    float* sums) {
  for (std::int64_t row = 0; row < ys.result; ++row) {
    for (std::int64_t column = 0; column < xs.result; ++column) {
      const float value = simd::widen(gradient[row * xs.result + column]);
      for_each_tap(ys, xs, row, column, [&](std::int64_t y, std::int64_t x, std::int64_t tap) {
        sums[tap] += value * simd::widen(plane[y * xs.size + x]);
      });
    }
  }
}

#define LOOM_SUM_PLANE(From, To)                                                                  \
  template void sum_plane(const WindowAxis&, const WindowAxis&, const From*, const float*, float, \
                          Blocks::Range, To*, std::int64_t);
LOOM_SUM_PLANE(float, float)
LOOM_SUM_PLANE(BFloat16, float)
LOOM_SUM_PLANE(BFloat16, BFloat16)
#undef LOOM_SUM_PLANE
template void add_plane_taps(const WindowAxis&, const WindowAxis&, const float*, const float*,
                             float*);
template void add_plane_taps(const WindowAxis&, const WindowAxis&, const BFloat16*, const BFloat16*,
                             float*);

template struct Convolution<float>;
template struct Convolution<BFloat16>;

}  // namespace loom::kernels::conv
