// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/pooling.h"

#include <algorithm>
#include <limits>

namespace loom::kernels::pool_resample {
namespace {

/// Rows of room are a few cache lines apart.
constexpr std::int64_t padded(std::int64_t count) { return (count + 31) / 16 * 16; }

/// A row of the input with what windows see beyond it.
std::int64_t padded_row(const WindowAxis& columns) {
  const std::int64_t windows =
      (columns.to - 1) * columns.stride + (columns.kernel - 1) * columns.dilation + 1;
  return std::max(windows, columns.padding + columns.from);
}
/// Zeros before a row of results that is spread.
std::int64_t lead(const WindowAxis& columns) { return columns.kernel / columns.stride + 1; }

RowWindows windows_of(const WindowAxis& axis) {
  return {axis.to, axis.kernel, axis.stride, axis.dilation};
}

/// Calls body(row of the input, first) for the rows that windows of a row of the result see.
template <class Body>
void for_rows(const Windows& w, std::int64_t row, Body body) {
  const auto z = static_cast<std::size_t>(row / w.rows.to);
  const auto y = static_cast<std::size_t>(row % w.rows.to);
  bool first = true;
  for (std::int64_t d = w.depth.begin[z]; d < w.depth.end[z]; d += w.depth.dilation) {
    for (std::int64_t h = w.rows.begin[y]; h < w.rows.end[y]; h += w.rows.dilation) {
      body(d * w.rows.from + h, first);
      first = false;
    }
  }
}

/// The same for rows of the result whose windows see a row of the input: body(row, count, first).
template <class Body>
void for_results(const Windows& w, std::int64_t row, Body body) {
  const auto z = static_cast<std::size_t>(row / w.rows.from);
  const auto y = static_cast<std::size_t>(row % w.rows.from);
  bool first = true;
  for (std::int64_t d = w.depth.cover_begin[z]; d < w.depth.cover_end[z]; ++d) {
    for (std::int64_t h = w.rows.cover_begin[y]; h < w.rows.cover_end[y]; ++h) {
      const double count =
          w.depth.count[static_cast<std::size_t>(d)] * w.rows.count[static_cast<std::size_t>(h)];
      body(d * w.rows.to + h, w.divisor == 0 ? count : w.divisor, first);
      first = false;
    }
  }
}

/// What a row's averages are divided by, beside their columns' counts.
double divisor_of(const Windows& w, std::int64_t row) {
  if (w.divisor != 0) return w.divisor;
  return w.depth.count[static_cast<std::size_t>(row / w.rows.to)] *
         w.rows.count[static_cast<std::size_t>(row % w.rows.to)];
}
double column_divisor(const Windows& w, std::int64_t column) {
  return w.divisor != 0 ? 1 : w.columns.count[static_cast<std::size_t>(column)];
}
template <class T>
const WideOf<T>* column_divisors(const Windows& w, WideOf<T> factor, WideOf<T>* room) {
  for (std::int64_t i = 0; i < w.columns.to; ++i) {
    room[i] = factor * static_cast<WideOf<T>>(column_divisor(w, i));
  }
  return room;
}

// Rows of an image whose channels lie beside each other are added up, or compared, whole where
// channels are few: a call for each element of a window would cost more than what it does.
constexpr std::int64_t kFewChannels = 64, kLongestImageRow = 8192;
bool takes_whole_rows(const Windows& w) {
  return w.channels <= kFewChannels && w.input_row() <= kLongestImageRow;
}

template <class T>
void largest_whole_rows(const Windows& w, std::int64_t row, const T* from, WideOf<T>* room, T* to,
                        std::int64_t* to_places) noexcept {
  const auto take = take_larger<T>.of(simd_level());
  const std::int64_t length = w.input_row(), pitch = padded(length);
  auto* const bases =
      to_places == nullptr ? nullptr : reinterpret_cast<std::int32_t*>(room + pitch);
  WideOf<T>* const best = room + 2 * pitch;
  auto* const places = reinterpret_cast<std::int32_t*>(best + padded(w.channels));
  for_rows(w, row, [&](std::int64_t line, bool first) {
    take(from + line * length, static_cast<std::int32_t>(line * w.columns.from), length, first,
         room, bases);
  });
  // A place is a base and where its element is in the row, which here has all channels.
  for (std::int64_t x = 0, at = 0; bases != nullptr && x < w.columns.from; ++x) {
    for (std::int64_t c = 0; c < w.channels; ++c, ++at) {
      bases[at] += static_cast<std::int32_t>(x - at);
    }
  }
  for (std::int64_t i = 0; i < w.columns.to; ++i, to += w.channels) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t begin = w.columns.begin[at], step = w.columns.dilation;
    const std::int64_t elements = (w.columns.end[at] - begin + step - 1) / step;
    largest_of_windows<T>(
        room + begin * w.channels, bases == nullptr ? nullptr : bases + begin * w.channels,
        {w.channels, elements, 1, step * w.channels}, -begin * w.channels, best, places);
    put_largest<T>(best, places, w.channels, to, to_places);
    if (to_places != nullptr) to_places += w.channels;
  }
}

template <class T>
void average_last(const Windows& w, std::int64_t row, const Channels& part, const T* from,
                  WideOf<T>* room, T* to) noexcept {
  std::vector<const T*> lines;
  for_rows(w, row, [&](std::int64_t line, bool) {
    lines.push_back(from + line * w.input_row() + part.first);
  });
  const WideOf<T>* const divisors =
      column_divisors<T>(w, static_cast<WideOf<T>>(divisor_of(w, row)), room);
  average_pixels<T>(lines.data(), static_cast<std::int64_t>(lines.size()),
                    {w.columns.to, w.columns.begin.data(), w.columns.end.data()}, divisors,
                    {part.count, w.channels}, to + part.first);
}

template <class T>
void average_gradient_last(const Windows& w, std::int64_t row, const T* grad, WideOf<T>* room,
                           T* to) noexcept {
  const auto add = add_elements<T>.of(simd_level());
  for (std::int64_t x = 0; x < w.columns.from; ++x, to += w.channels) {
    const auto at = static_cast<std::size_t>(x);
    const std::int64_t begin = w.columns.cover_begin[at];
    if (x > 0 && begin == w.columns.cover_begin[at - 1] &&
        w.columns.cover_end[at] == w.columns.cover_end[at - 1]) {
      std::copy_n(to - w.channels, w.channels, to);  // the same windows see it
      continue;
    }
    bool none = true;
    for_results(w, row, [&](std::int64_t line, double count, bool first) {
      for (std::int64_t i = begin; i < w.columns.cover_end[at]; ++i) {
        add(grad + line * w.result_row() + i * w.channels,
            static_cast<WideOf<T>>(count * column_divisor(w, i)), w.channels, first && i == begin,
            room);
        none = false;
      }
    });
    if (none) std::fill_n(room, w.channels, WideOf<T>{});
    divide_elements<T>(room, 1, w.channels, to);
  }
}

template <class T>
void largest_last(const Windows& w, std::int64_t row, const T* from, WideOf<T>* room, T* to,
                  std::int64_t* to_places) noexcept {
  if (takes_whole_rows(w)) return largest_whole_rows(w, row, from, room, to, to_places);
  const auto take = take_larger<T>.of(simd_level());
  auto* const places =
      to_places == nullptr ? nullptr : reinterpret_cast<std::int32_t*>(room + padded(w.channels));
  for (std::int64_t i = 0; i < w.columns.to; ++i, to += w.channels) {
    const auto at = static_cast<std::size_t>(i);
    for_rows(w, row, [&](std::int64_t line, bool first) {
      const std::int64_t begin = w.columns.begin[at];
      for (std::int64_t x = begin; x < w.columns.end[at]; x += w.columns.dilation) {
        take(from + line * w.input_row() + x * w.channels,
             static_cast<std::int32_t>(line * w.columns.from + x), w.channels, first && x == begin,
             room, places);
      }
    });
    put_largest<T>(room, places, w.channels, to, to_places);
    if (to_places != nullptr) to_places += w.channels;
  }
}

}  // namespace

WindowAxis WindowAxis::regular(std::int64_t from, std::int64_t to, std::int64_t kernel,
                               std::int64_t stride, std::int64_t padding, std::int64_t dilation,
                               bool counts_padding) {
  WindowAxis axis;
  axis.from = from;
  axis.to = to;
  axis.kernel = kernel;
  axis.stride = stride;
  axis.padding = padding;
  axis.dilation = dilation;
  for (std::int64_t i = 0; i < to; ++i) {
    const std::int64_t start = i * stride - padding;
    const std::int64_t before = start < 0 ? (-start + dilation - 1) / dilation : 0;
    const std::int64_t begin = start + before * dilation;
    const std::int64_t end = std::min(start + (kernel - 1) * dilation + 1, from);
    axis.begin.push_back(static_cast<std::int32_t>(begin));
    axis.end.push_back(static_cast<std::int32_t>(end));
    const std::int64_t all = std::min(start + kernel, from + padding) - start;
    axis.count.push_back(static_cast<double>(counts_padding ? all : end - begin));
  }
  axis.find_cover();
  return axis;
}

WindowAxis WindowAxis::adaptive(std::int64_t from, std::int64_t to) {
  if (from % to == 0) return regular(from, to, from / to, from / to, 0, 1, false);
  WindowAxis axis;
  axis.from = from;
  axis.to = to;
  for (std::int64_t i = 0; i < to; ++i) {
    axis.begin.push_back(static_cast<std::int32_t>(i * from / to));
    axis.end.push_back(static_cast<std::int32_t>(((i + 1) * from + to - 1) / to));
    axis.count.push_back(static_cast<double>(axis.end.back() - axis.begin.back()));
  }
  axis.find_cover();
  return axis;
}

// Windows begin and end in rising order.
void WindowAxis::find_cover() {
  std::int32_t first = 0, last = 0;
  const auto results = static_cast<std::int32_t>(to);
  for (std::int32_t x = 0; x < from; ++x) {
    while (first < results && end[static_cast<std::size_t>(first)] <= x) ++first;
    while (last < results && begin[static_cast<std::size_t>(last)] <= x) ++last;
    cover_begin.push_back(first);
    cover_end.push_back(std::max(first, last));
  }
}

std::int64_t Windows::room() const noexcept {
  if (last) {
    return std::max(2 * padded(channels) + (takes_whole_rows(*this) ? 2 * padded(input_row()) : 0),
                    padded(columns.to));
  }
  std::int64_t row = columns.from, spread = 0;
  if (columns.kernel > 0) {
    row = padded_row(columns);
    spread = room_to_spread(columns.stride, columns.padding, columns.from) + lead(columns) +
             row_to_spread(columns.stride, columns.padding, columns.from);
  }
  return 2 * padded(row) + 3 * padded(columns.to) + padded(spread);
}

template <class T>
void average_row(const Windows& w, std::int64_t row, const Channels& part, const T* from,
                 WideOf<T>* room, T* to) noexcept {
  if (w.last) return average_last(w, row, part, from, room, to);
  const auto add = add_elements<T>.of(simd_level());
  const std::int64_t length = w.columns.kernel > 0 ? padded_row(w.columns) : w.columns.from;
  WideOf<T>* const line = room;
  WideOf<T>* const divisors = line + padded(length);
  // What windows see beyond the row counts nothing.
  std::fill_n(line, w.columns.padding, WideOf<T>{});
  for (std::int64_t i = w.columns.padding + w.columns.from; i < length; ++i) line[i] = 0;
  for_rows(w, row, [&](std::int64_t at, bool first) {
    add(from + at * w.columns.from, 1, w.columns.from, first, line + w.columns.padding);
  });
  const auto divisor = static_cast<WideOf<T>>(divisor_of(w, row));
  column_divisors<T>(w, 1, divisors);
  if (w.columns.kernel > 0) {
    average_windows<T>(line, windows_of(w.columns), divisor, divisors,
                       divisors + padded(w.columns.to), to);
  } else {
    average_spans<T>(line, {w.columns.to, w.columns.begin.data(), w.columns.end.data()}, divisor,
                     divisors, to);
  }
}

template <class T>
void average_gradient_row(const Windows& w, std::int64_t row, const T* grad, WideOf<T>* room,
                          T* to) noexcept {
  if (w.last) return average_gradient_last(w, row, grad, room, to);
  const auto add = add_elements<T>.of(simd_level());
  const bool regular = w.columns.kernel > 0;
  const std::int64_t before = regular ? lead(w.columns) : 0;
  const std::int64_t length =
      before +
      std::max(w.columns.to,
               regular ? row_to_spread(w.columns.stride, w.columns.padding, w.columns.from) : 0);
  WideOf<T>* const line = room + before;
  std::fill_n(room, length, WideOf<T>{});
  for_results(w, row, [&](std::int64_t at, double count, bool first) {
    add(grad + at * w.columns.to, static_cast<WideOf<T>>(count), w.columns.to, first, line);
  });
  for (std::int64_t i = 0; i < w.columns.to && w.divisor == 0; ++i) {
    line[i] /= static_cast<WideOf<T>>(w.columns.count[static_cast<std::size_t>(i)]);
  }
  if (regular) {
    spread_windows<T>(line, windows_of(w.columns), w.columns.padding, w.columns.from,
                      room + padded(length), to);
  } else {
    sum_spans<T>(line, {w.columns.from, w.columns.cover_begin.data(), w.columns.cover_end.data()},
                 to);
  }
}

template <class T>
void largest_row(const Windows& w, std::int64_t row, const T* from, WideOf<T>* room, T* to,
                 std::int64_t* to_places) noexcept {
  if (w.last) return largest_last(w, row, from, room, to, to_places);
  const auto take = take_larger<T>.of(simd_level());
  const std::int64_t length = padded_row(w.columns), columns = w.columns.from;
  WideOf<T>* const line = room;
  auto* const bases = reinterpret_cast<std::int32_t*>(line + padded(length));
  WideOf<T>* const best = line + 2 * padded(length);
  auto* const places = reinterpret_cast<std::int32_t*>(best + padded(w.columns.to));
  // What windows see beyond the row is no larger than anything, and behind all of it.
  const auto pad = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      line[i] = -std::numeric_limits<WideOf<T>>::infinity();
      bases[i] = std::numeric_limits<std::int32_t>::max() / 2;
    }
  };
  pad(0, w.columns.padding);
  pad(w.columns.padding + columns, length);
  for_rows(w, row, [&](std::int64_t at, bool first) {
    take(from + at * columns, static_cast<std::int32_t>(at * columns), columns, first,
         line + w.columns.padding, to_places == nullptr ? nullptr : bases + w.columns.padding);
  });
  largest_of_windows<T>(line, to_places == nullptr ? nullptr : bases, windows_of(w.columns),
                        w.columns.padding, best, places);
  put_largest<T>(best, places, w.columns.to, to, to_places);
}

#define LOOM_INSTANTIATE(T)                                                                      \
  template void average_row(const Windows&, std::int64_t, const Channels&, const T*, WideOf<T>*, \
                            T*) noexcept;                                                        \
  template void average_gradient_row(const Windows&, std::int64_t, const T*, WideOf<T>*,         \
                                     T*) noexcept;                                               \
  template void largest_row(const Windows&, std::int64_t, const T*, WideOf<T>*, T*,              \
                            std::int64_t*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(double)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::pool_resample
