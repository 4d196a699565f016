// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/direct.h"

#include "loom/ops/random/isa_clones.h"

#include <bit>
#include <cmath>

namespace loom::ops {
namespace {

using c10::BFloat16;

// Numbers whose exponent is all ones.
constexpr std::uint32_t kExponent = 0x7f800000;
constexpr std::uint16_t kShortExponent = kExponent >> 16;

}  // namespace

LOOM_ISA_CLONES bool all_finite(const float* data, std::int64_t count) {
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    found |= (std::bit_cast<std::uint32_t>(data[i]) & kExponent) == kExponent ? 1U : 0U;
  }
  return found == 0;
}

LOOM_ISA_CLONES bool all_finite(const BFloat16* data, std::int64_t count) {
  std::uint16_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    found |= (data[i].x & kShortExponent) == kShortExponent ? 1U : 0U;
  }
  return found == 0;
}

template <class T>
float DirectConvolution<T>::sum(std::int64_t image, std::int64_t pixel, std::int64_t filter) const {
  const WindowAxis &ys = windows.y, &xs = windows.x;
  const std::int64_t channels = windows.channels, taps = windows.taps();
  const std::int64_t second = turned ? filters : channels;
  const std::int64_t tap_step = weights_last ? second : 1, second_step = weights_last ? 1 : taps;
  const std::int64_t channel_step = turned ? second * taps : second_step;
  const std::int64_t filter_step = turned ? second_step : second * taps;
  const std::int64_t image_step = windows.channels_last ? 1 : windows.plane();
  const std::int64_t pixel_step = windows.channels_last ? channels : 1;
  float made = bias != nullptr ? static_cast<float>(bias[filter]) : 0.F;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t y =
        pixel / xs.result * ys.stride - ys.padding + tap / xs.kernel * ys.dilation;
    const std::int64_t x =
        pixel % xs.result * xs.stride - xs.padding + tap % xs.kernel * xs.dilation;
    if (y < 0 || y >= ys.size || x < 0 || x >= xs.size) continue;
    const T* from = images + image * channels * windows.plane() + (y * xs.size + x) * pixel_step;
    const T* weight = weights + filter * filter_step + (turned ? taps - 1 - tap : tap) * tap_step;
    for (std::int64_t c = 0; c < channels; ++c) {
      made +=
          static_cast<float>(from[c * image_step]) * static_cast<float>(weight[c * channel_step]);
      // It stays one, which is soon so if all images or weights are: they need not take long.
      if (std::isnan(made)) return made;
    }
  }
  return made;
}

template <class T>
bool DirectConvolution<T>::needs_mending() const {
  if (!windows.y.padded() && !windows.x.padded()) return false;
  return windows.rows() >= windows.pixels() || !all_finite(weights, filters * windows.rows());
}

template <class T>
void DirectConvolution<T>::mend_pixel(std::int64_t image, std::int64_t pixel,
                                      std::int64_t filter) const {
  const std::int64_t plane = windows.result_plane();
  T* at = result + (windows.channels_last ? (image * plane + pixel) * filters + filter
                                          : (image * filters + filter) * plane + pixel);
  if (!std::isfinite(static_cast<float>(*at))) *at = static_cast<T>(sum(image, pixel, filter));
}

template <class T>
void DirectConvolution<T>::mend(Blocks::Range pixels, Blocks::Range some) const {
  const std::int64_t plane = windows.result_plane();
  for_each_image(windows, pixels.first, pixels.count(), [&](const ImageRun& run) {
    const std::int64_t last = run.pixel + run.count;
    if (!windows.channels_last) {
      for (std::int64_t f = some.first; f < some.last; ++f) {
        const T* line = result + (run.image * filters + f) * plane;
        if (all_finite(line + run.pixel, run.count)) continue;
        for (std::int64_t pixel = run.pixel; pixel < last; ++pixel) mend_pixel(run.image, pixel, f);
      }
      return;
    }
    const T* lines = result + run.image * plane * filters;
    if (some.count() == filters && all_finite(lines + run.pixel * filters, run.count * filters)) {
      return;
    }
    for (std::int64_t pixel = run.pixel; pixel < last; ++pixel) {
      if (all_finite(lines + pixel * filters + some.first, some.count())) continue;
      for (std::int64_t f = some.first; f < some.last; ++f) mend_pixel(run.image, pixel, f);
    }
  });
}

template struct DirectConvolution<float>;
template struct DirectConvolution<BFloat16>;

}  // namespace loom::ops
