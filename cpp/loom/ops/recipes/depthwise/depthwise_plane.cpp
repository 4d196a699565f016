// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/depthwise/depthwise_plane.h"

#include "loom/kernels/conv/depthwise_direct.h"
#include "loom/kernels/conv/direct.h"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace loom::ops {
namespace {

namespace conv = kernels::conv;

// What is laid out at a time: half of the first-level cache.
constexpr std::int64_t kMostLaidOut = (16 << 10) / sizeof(float);
// Rows that are summed up together.
constexpr std::int64_t kRowsTogether = 4;

const Scratch t_seen;

// A plane's weights are so few that to call the kernel for many numbers takes longer.
bool few_are_finite(const float* numbers, std::int64_t count) noexcept {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    any |= (std::bit_cast<std::uint32_t>(numbers[i]) & kExponent) == kExponent ? 1 : 0;
  }
  return any == 0;
}

}  // namespace

bool are_direct_windows(const WindowAxis& y, const WindowAxis& x) noexcept {
  return y.kernel == x.kernel && y.stride == x.stride && y.dilation == 1 && x.dilation == 1 &&
         conv::has_direct_depthwise(y.kernel, y.stride);
}

DepthwisePlane::DepthwisePlane(const WindowAxis& y, const WindowAxis& x) : y_(y), x_(x) {
  const std::int64_t stride = x.stride, part = ceil_div(x.seen(), stride);
  // Parts are written side by side, in whole vectors.
  const std::int64_t step = stride == 1 ? part : round_up(part, 16) + conv::kDepthwiseBeyond;
  seen_ = {.rows = 0,
           .first = 0,
           .last = 0,
           .begin = x.inside_begin(),
           .end = x.inside_end(),
           .columns = x.seen(),
           .stride = stride,
           .image_step = x.size,
           .row_step = stride * step,
           .part_step = step};
  most_rows_ = rows_at_a_time();
  for (std::int64_t j = 0; j < x.kernel; ++j) {
    places_[static_cast<std::size_t>(j)] = seen_.place(j * x.dilation);
  }
}

std::int64_t DepthwisePlane::rows_at_a_time() const {
  const std::int64_t window = (y_.kernel - 1) * y_.dilation + 1;
  const std::int64_t most = (kMostLaidOut / seen_.row_step - window) / y_.stride + 1;
  return std::max(most / kRowsTogether * kRowsTogether, kRowsTogether);
}

template <class From>
const float* DepthwisePlane::lay_out(const From* plane, Blocks::Range rows) const {
  conv::SeenRows seen = seen_;
  const std::int64_t top = rows.first * y_.stride - y_.padding;
  seen.rows = (rows.count() - 1) * y_.stride + (y_.kernel - 1) * y_.dilation + 1;
  seen.first = std::clamp<std::int64_t>(-top, 0, seen.rows);
  seen.last = std::clamp<std::int64_t>(y_.size - top, seen.first, seen.rows);
  float* made = t_seen.get<float>(seen.rows * seen.row_step + 2 * conv::kDepthwiseBeyond);
  const std::int64_t left = seen.begin - x_.padding;
  conv::lay_out_rows<From>(plane + (top + seen.first) * x_.size + left, seen, made);
  return made;
}

conv::DepthwiseRows DepthwisePlane::sums_of(Blocks::Range rows, std::int64_t step) const {
  return {.rows = rows.count(),
          .columns = x_.result,
          .step = step,
          .stride = y_.stride,
          .dilation = y_.dilation,
          .kernel_y = y_.kernel,
          .kernel_x = x_.kernel,
          .row_step = seen_.row_step,
          .places = places_.data()};
}

template <class From, class To>
void DepthwisePlane::sum(const From* plane, const float* weights, float bias, Blocks::Range rows,
                         To* to, std::int64_t step) const {
  // Padding is multiplied with weights, too.
  if (padded() && !few_are_finite(weights, taps())) [[unlikely]] {
    return conv::sum_plane(y_, x_, plane, weights, bias, rows, to, step);
  }
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>) {
    if (are_direct_windows(y_, x_)) {
      return conv::depthwise_direct(plane, weights, bias,
                                    {.rows = y_.size,
                                     .columns = x_.size,
                                     .padding_y = y_.padding,
                                     .padding_x = x_.padding,
                                     .kernel = y_.kernel,
                                     .stride = y_.stride,
                                     .first = rows.first,
                                     .last = rows.last,
                                     .result_columns = x_.result,
                                     .step = step},
                                    to);
    }
  }
  for (std::int64_t y = rows.first; y < rows.last; y += most_rows_) {
    const Blocks::Range some{y, std::min(y + most_rows_, rows.last)};
    const float* seen = lay_out(plane, some);
    conv::depthwise_rows<To>(seen, weights, bias, sums_of(some, step), to + y * step);
  }
}

template <class T>
void DepthwisePlane::add_taps(const T* plane, const T* gradient, float* sums) const {
  for (std::int64_t y = 0; y < y_.result; y += most_rows_) {
    const Blocks::Range some{y, std::min(y + most_rows_, y_.result)};
    const float* seen = lay_out(plane, some);
    conv::add_depthwise_taps<T>(seen, gradient + y * x_.result, sums_of(some, x_.result), sums);
  }
}

#define LOOM_DEPTHWISE_SUM(From, To)                                                      \
  template void DepthwisePlane::sum(const From*, const float*, float, Blocks::Range, To*, \
                                    std::int64_t) const;
LOOM_DEPTHWISE_SUM(float, float)
LOOM_DEPTHWISE_SUM(simd::BFloat16, float)
LOOM_DEPTHWISE_SUM(simd::BFloat16, simd::BFloat16)
#undef LOOM_DEPTHWISE_SUM

template void DepthwisePlane::add_taps(const float*, const float*, float*) const;
template void DepthwisePlane::add_taps(const simd::BFloat16*, const simd::BFloat16*, float*) const;

}  // namespace loom::ops
