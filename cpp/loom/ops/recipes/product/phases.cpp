// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/phases.h"

#include "loom/kernels/copy/interleave.h"
#include "loom/kernels/copy/rows.h"
#include "loom/ops/recipes/product/convolve_parts.h"

namespace loom::ops {
namespace {

using kernels::conv::add_rows;
using kernels::conv::TapRows;

// Elements of the planes of a block, and of the gradient that it packs: they stay in L2.
constexpr std::int64_t kPlanes = 96 * 1024, kPacked = 128 * 1024;

const Scratch t_planes, t_rows;

}  // namespace

PhaseAxis::PhaseAxis(const WindowAxis& axis)
    : stride(axis.stride), size(axis.size), rows(ceil_div(axis.size, axis.stride)) {
  for (std::int64_t k = 0; k < axis.kernel; ++k) {
    const std::int64_t at = k * axis.dilation - axis.padding;
    const std::int64_t phase = ((at % stride) + stride) % stride;
    phases.push_back(phase);
    shifts.push_back((at - phase) / stride);
    least = std::min(least, shifts.back());
    most = std::max(most, shifts.back());
  }
}

// As many as the cores can share with the blocks of channels, and of a size that the caches hold.
std::vector<Unit> Phases::units(std::int64_t channels, std::int64_t channel_blocks) const {
  const std::int64_t images = windows.images, plane = channels * count() * y.rows * pitch;
  const std::int64_t packed = filters * windows.y.result * pitch;
  const auto worth =
      static_cast<std::int64_t>(work(windows.rows(), filters, windows.pixels()) / kLeastBlockWork);
  const std::int64_t wanted =
      ceil_div(std::clamp<std::int64_t>(worth, 1, kFewBlocks), channel_blocks);
  const std::int64_t bands =
      std::max({ceil_div(wanted, images), ceil_div(plane, kPlanes), ceil_div(packed, kPacked)});
  const Blocks rows(y.rows, std::max(ceil_div(y.rows, bands), 2 * (y.most - y.least) + 1));
  const std::int64_t together =
      std::min({ceil_div(images, wanted), kPlanes / plane, kPacked / packed});
  const Blocks some(images, rows.count() > 1 ? 1 : std::max<std::int64_t>(together, 1));
  std::vector<Unit> made;
  std::int64_t panel = 0;
  for (std::int64_t i = 0; i < some.count(); ++i) {
    for (std::int64_t band = 0; band < rows.count(); ++band) {
      const auto [first, last] = rows[band];
      const std::int64_t begin = std::clamp<std::int64_t>(first - y.most, 0, windows.y.result);
      const std::int64_t end = std::clamp(last - y.least, begin, windows.y.result);
      made.push_back({some[i], {first, last}, {begin, end}, panel});
      panel += panels(made.back());
    }
  }
  return made;
}

void Phases::pack(const float* gradient, const Unit& unit, float* to) const {
  for (std::int64_t panel = 0; panel < panels(unit); ++panel) {
    pack_panel(gradient, unit, panel, to + panel * filters * kPanel);
  }
}

// Pixels of the gradient, filter by filter; with zeros where a row of the phases is longer.
void Phases::pack_panel(const float* gradient, const Unit& unit, std::int64_t panel,
                        float* to) const {
  const std::int64_t width = windows.x.result, plane = windows.result_plane();
  const std::int64_t height = unit.seen.count(), first = panel * kPanel;
  const std::int64_t count = std::min(kPanel, pixels(unit) - first);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (first + done) / pitch, x = (first + done) % pitch;
    const std::int64_t image = unit.images.first + row / height, y = row % height;
    // Rows that follow each other without a gap are one.
    const std::int64_t stretch = pitch == width ? (height - y) * pitch - x : pitch - x;
    const std::int64_t length = std::min(stretch, count - done);
    const std::int64_t inside =
        std::clamp<std::int64_t>(pitch == width ? length : width - x, 0, length);
    const std::int64_t at = (unit.seen.first + y) * width + x;
    if (windows.channels_last) {
      transpose(inside, filters, gradient + (image * plane + at) * filters, filters, to + done,
                kPanel);
    }
    for (std::int64_t f = 0; f < filters; ++f) {
      float* row_of_filter = to + f * kPanel + done;
      if (!windows.channels_last) {
        std::copy_n(gradient + (image * filters + f) * plane + at, inside, row_of_filter);
      }
      std::fill_n(row_of_filter + inside, length - inside, 0.F);
    }
    done += length;
  }
}

Planes::Planes(const Phases& phases, const Unit& unit, Blocks::Range channels, const float* bias)
    : phases_(phases),
      unit_(unit),
      channels_(channels),
      channel_step_(phases.count() * phases.plane(unit)) {
  const std::int64_t slack = std::max(phases.x.most, -phases.x.least);
  const std::int64_t images = unit.images.count();
  float* all = t_planes.get<float>(images * channels.count() * channel_step_ + 2 * slack);
  std::fill_n(all, slack, 0.F);
  data_ = all + slack;
  for (std::int64_t i = 0; i < images * channels.count(); ++i) {
    std::fill_n(data_ + i * channel_step_, channel_step_,
                bias != nullptr ? bias[channels.first + i % channels.count()] : 0.F);
  }
  std::fill_n(data_ + images * channels.count() * channel_step_, slack, 0.F);
}

void Planes::add(float* sums, std::int64_t panel, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t taps = phases_.windows.taps();
  for (std::int64_t row = 0; row < std::min(taps, rows); ++row) {
    const std::int64_t at = first_row + row;
    add_tap(sums + row * kPanel, panel, at % taps, at / taps, ceil_div(rows - row, taps));
  }
}

void Planes::join(float* images) const {
  const Windows& windows = phases_.windows;
  const std::int64_t count = channels_.count(), width = phases_.x.size;
  for (std::int64_t m = 0; m < unit_.images.count(); ++m) {
    const std::int64_t image = unit_.images.first + m;
    if (windows.channels_last) {
      for_each_row([&](std::int64_t row, const float* first) {
        float* made = t_rows.get<float>(count * width);
        for (std::int64_t c = 0; c < count; ++c) {
          join_row(first + (m * count + c) * channel_step_, made + c * width);
        }
        float* to = images + (image * windows.plane() + row * width) * windows.channels;
        transpose(count, width, made, width, to + channels_.first, windows.channels);
      });
      continue;
    }
    for (std::int64_t c = 0; c < count; ++c) {
      float* to = images + (image * windows.channels + channels_.first + c) * windows.plane();
      for_each_row([&](std::int64_t row, const float* first) {
        join_row(first + (m * count + c) * channel_step_, to + row * width);
      });
    }
  }
}

void Planes::finish(const Grid& grid) const {
  const Windows& windows = phases_.windows;
  const PhaseAxis& y = phases_.y;
  const std::int64_t first = unit_.rows.first * y.stride * windows.x.size;
  const std::int64_t last = std::min(unit_.rows.last * y.stride, y.size) * windows.x.size;
  for (std::int64_t image = unit_.images.first; image < unit_.images.last; ++image) {
    if (windows.channels_last) {
      grid.finish(image * windows.plane() + first, last - first, channels_.first,
                  channels_.count());
    } else {
      grid.finish(image * windows.channels + channels_.first, channels_.count(), first,
                  last - first);
    }
  }
}

void Planes::add_tap(float* sums, std::int64_t panel, std::int64_t tap, std::int64_t channel,
                     std::int64_t channels) {
  const PhaseAxis &y = phases_.y, &x = phases_.x;
  const auto ky = static_cast<std::size_t>(tap / phases_.windows.x.kernel);
  const auto kx = static_cast<std::size_t>(tap % phases_.windows.x.kernel);
  const std::int64_t pitch = phases_.pitch, plane = phases_.plane(unit_);
  const std::int64_t column_step = phases_.windows.taps() * kPanel, first = panel * kPanel;
  const std::int64_t count = std::min(kPanel, phases_.pixels(unit_) - first);
  clear_edges(sums, column_step, channels, x.shifts[kx], first, count);

  const std::int64_t of_image = unit_.seen.count() * pitch;
  const std::int64_t down = unit_.seen.first + y.shifts[ky] - unit_.rows.first;
  const std::int64_t begin = std::clamp<std::int64_t>(-down * pitch, 0, of_image);
  const std::int64_t end = std::clamp(plane - down * pitch, begin, of_image);
  pieces_.clear();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t image = (first + done) / of_image, at = (first + done) % of_image;
    const std::int64_t length = std::min(of_image - at, count - done);
    const std::int64_t from = std::max(at, begin), to = std::min(at + length, end);
    if (from < to) {
      pieces_.push_back(
          {image * channels_.count() * channel_step_ + from + down * pitch + x.shifts[kx],
           done + from - at, to - from});
    }
    done += length;
  }
  const TapRows rows{.channels = channels,
                     .image_step = channel_step_,
                     .column_step = column_step,
                     .pieces = pieces_.data(),
                     .count = static_cast<std::int64_t>(pieces_.size()),
                     .zeros = 0,
                     .step = 1};
  add_rows(sums, rows,
           data_ + channel * channel_step_ + (y.phases[ky] * x.stride + x.phases[kx]) * plane);
}

// Sums that lie beside the image, or of no pixel, would be added to the next row.
void Planes::clear_edges(float* sums, std::int64_t step, std::int64_t channels, std::int64_t shift,
                         std::int64_t first, std::int64_t count) const {
  const std::int64_t pitch = phases_.pitch;
  const std::int64_t begin = std::clamp<std::int64_t>(-shift, 0, pitch);
  const std::int64_t end =
      std::clamp(std::min(phases_.windows.x.result, pitch - shift), begin, pitch);
  if (begin == 0 && end == pitch) return;
  const auto clear = [&](std::int64_t from, std::int64_t to) {
    from = std::max<std::int64_t>(from, 0);
    to = std::min(to, count);
    if (from < to) kernels::fill_rows(channels, to - from, 0.F, sums + from, step);
  };
  for (std::int64_t row = -(first % pitch); row < count; row += pitch) {
    clear(row, row + begin);
    clear(row + end, row + pitch);
  }
}

// The rows of an image, and where they begin in the planes of the first channel of the first one.
template <class Function>
void Planes::for_each_row(Function&& function) const {
  const PhaseAxis& y = phases_.y;
  for (std::int64_t i = 0; i < unit_.rows.count(); ++i) {
    for (std::int64_t phase = 0; phase < y.stride; ++phase) {
      const std::int64_t row = (unit_.rows.first + i) * y.stride + phase;
      if (row >= y.size) return;
      const std::int64_t plane = phase * phases_.x.stride;
      function(row, data_ + plane * phases_.plane(unit_) + i * phases_.pitch);
    }
  }
}

void Planes::join_row(const float* from, float* to) const {
  const PhaseAxis& x = phases_.x;
  if (x.stride == 1) {
    std::copy_n(from, x.size, to);
    return;
  }
  const std::int64_t plane = phases_.plane(unit_), whole = x.size / x.stride;
  sources_.resize(static_cast<std::size_t>(x.stride));
  for (std::int64_t p = 0; p < x.stride; ++p) {
    sources_[static_cast<std::size_t>(p)] = reinterpret_cast<const std::byte*>(from + p * plane);
  }
  kernels::interleave_elements(sources_, sizeof(float), 0, whole, reinterpret_cast<std::byte*>(to));
  // The first phases have an element more.
  const std::int64_t longer = x.size - whole * x.stride;
  kernels::copy_steps(longer, from + whole, plane, to + whole * x.stride, 1);
}

}  // namespace loom::ops
