// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/resample.h"

#include "loom/kernels/pool_resample/mix_rows.h"
#include "loom/kernels/pool_resample/resample_rows.h"
#include "loom/kernels/row_pitch.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

namespace loom::kernels::pool_resample {
namespace {

// What a piece of a row in channels last sees stays in the first-level cache: 32 KB.
constexpr std::int64_t kPiece = 8192;
// Gradients of large factors have more.
constexpr std::int64_t kMostMixed = 64;

bool copies(const Taps& taps) {
  return taps.most() == 1 && static_cast<std::int64_t>(taps.place.size()) == taps.to() &&
         std::all_of(taps.weight.begin(), taps.weight.end(), [](float w) { return w == 1; });
}

}  // namespace

std::int64_t Taps::most() const noexcept {
  std::int32_t found = 0;
  for (std::size_t i = 1; i < begin.size(); ++i) found = std::max(found, begin[i] - begin[i - 1]);
  return found;
}

void Taps::add(std::int32_t at, float counts) {
  place.push_back(at);
  weight.push_back(counts);
}

Taps Taps::single() {
  Taps made;
  made.add(0, 1);
  made.finish_element();
  return made;
}

Taps transposed(const Taps& taps) {
  Taps made;
  made.from = taps.to();
  made.begin.assign(static_cast<std::size_t>(taps.from) + 1, 0);
  for (const std::int32_t at : taps.place) ++made.begin[static_cast<std::size_t>(at) + 1];
  for (std::size_t i = 1; i < made.begin.size(); ++i) made.begin[i] += made.begin[i - 1];
  made.place.resize(taps.place.size());
  made.weight.resize(taps.place.size());
  std::vector<std::int32_t> next(made.begin.begin(), made.begin.end() - 1);
  for (std::int32_t i = 0; i < taps.to(); ++i) {
    for (std::int32_t t = taps.begin[static_cast<std::size_t>(i)];
         t < taps.begin[static_cast<std::size_t>(i) + 1]; ++t) {
      const auto from = static_cast<std::size_t>(t);
      const auto to = static_cast<std::size_t>(next[static_cast<std::size_t>(taps.place[from])]++);
      made.place[to] = i;
      made.weight[to] = taps.weight[from];
    }
  }
  return made;
}

/// The rows of the input that a row of the result sees, as numbers and weights.
class Resampler::LineList {
 public:
  explicit LineList(const Resampler& all) : all_(all) {}

  Lines of(std::size_t z, std::size_t y) {
    const Taps &depth = all_.depth_, &rows = all_.rows_;
    if (all_.flat_) {
      const std::int32_t begin = rows.begin[y];
      return {rows.place.data() + begin, rows.weight.data() + begin,
              all_.rows_slots_.data() + begin, rows.begin[y + 1] - begin};
    }
    const auto z_end = static_cast<std::size_t>(depth.begin[z + 1]);
    const auto y_end = static_cast<std::size_t>(rows.begin[y + 1]);
    std::int64_t count = 0;
    for (auto i = static_cast<std::size_t>(depth.begin[z]); i < z_end; ++i) {
      for (auto j = static_cast<std::size_t>(rows.begin[y]); j < y_end; ++j, ++count) {
        line_[count] = static_cast<std::int32_t>(depth.place[i] * rows.from + rows.place[j]);
        weight_[count] = depth.weight[i] * rows.weight[j];
        slot_[count] = all_.depth_slots_[i] + all_.rows_slots_[j];
      }
    }
    return {line_, weight_, slot_, count};
  }

 private:
  const Resampler& all_;
  std::int32_t line_[kMostMixed];
  float weight_[kMostMixed];
  std::int32_t slot_[kMostMixed];
};

/// Rows of the input that have been gathered, as many as a row of the result sees.
class Resampler::HeldRows {
 public:
  HeldRows(const Resampler& all, float* room) : all_(all), room_(room) {
    std::fill(std::begin(held_), std::end(held_), -1);
  }

  template <class T>
  const float* get(std::int64_t line, std::int32_t slot, const T* from, float* widened) {
    float* const to = room_ + slot * row_pitch(all_.result_row());
    if (std::exchange(held_[slot], line) == line) return to;
    const T* const row = from + line * all_.input_row();
    if constexpr (std::is_same_v<T, float>) {
      if (all_.full_) {
        all_.gather(row, to);
        return to;
      }
    }
    const float one = 1;
    mix_to_floats<T>(&row, &one, 1, all_.input_row(), widened);
    all_.gather(widened, to);
    return to;
  }

 private:
  const Resampler& all_;
  float* room_;
  std::int64_t held_[kMostMixed];
};

Resampler::Resampler(Taps depth, Taps rows, Taps columns, std::int64_t channels, bool last)
    : depth_(std::move(depth)),
      rows_(std::move(rows)),
      columns_(std::move(columns)),
      channels_(channels),
      last_(last),
      flat_(copies(depth_) && depth_.to() == 1 && depth_.from == 1),
      copies_(copies(depth_) && copies(rows_) && copies(columns_)),
      full_(static_cast<std::int64_t>(columns_.place.size()) == columns_.most() * columns_.to()),
      gathers_first_(!last && result_rows() >= input_rows()),
      most_(columns_.most()) {
  // Rows that are seen together are neighbours: each has a place of its own.
  const auto slots = [](const Taps& taps, std::int64_t step) {
    std::vector<std::int32_t> made;
    const std::int64_t most = std::max<std::int64_t>(taps.most(), 1);
    for (const std::int32_t at : taps.place) {
      made.push_back(static_cast<std::int32_t>(at % most * step));
    }
    return made;
  };
  depth_slots_ = slots(depth_, rows_.most());
  rows_slots_ = slots(rows_, 1);
  if (last) return;
  const auto elements = static_cast<std::size_t>(columns_.to());
  // What is no tap is the element behind the row, a zero.
  places_.assign(static_cast<std::size_t>(most_) * elements,
                 static_cast<std::int32_t>(columns_.from));
  weights_.assign(places_.size(), 0);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto first = static_cast<std::size_t>(columns_.begin[i]);
    for (std::size_t t = first; t < static_cast<std::size_t>(columns_.begin[i + 1]); ++t) {
      places_[(t - first) * elements + i] = columns_.place[t];
      weights_[(t - first) * elements + i] = columns_.weight[t];
    }
  }
}

bool Resampler::fits() const noexcept {
  return depth_.most() * rows_.most() <= kMostMixed && columns_.most() <= kMostMixed;
}

std::int64_t Resampler::room() const noexcept {
  if (last_) return row_pitch(std::max(kPiece, columns_.most() * channels_) + channels_);
  const std::int64_t held = gathers_first_ ? depth_.most() * rows_.most() : 1;
  return row_pitch(input_row() + 1) + held * row_pitch(result_row());
}

void Resampler::gather(const float* row, float* to) const noexcept {
  if (most_ == 0) {
    std::fill_n(to, result_row(), 0.F);
  } else if (most_ == 2) {
    const auto count = static_cast<std::size_t>(result_row());
    mix_elements({places_.data(), weights_.data()},
                 {places_.data() + count, weights_.data() + count}, row, result_row(), to);
  } else {
    sum_shares({places_.data(), weights_.data()}, most_, row, result_row(), to);
  }
}

template <class T>
void Resampler::mix_then_gather(const Lines& lines, const T* from, float* room,
                                T* to) const noexcept {
  float* const mixed = room;
  float* const gathered = room + row_pitch(input_row() + 1);
  const T* rows[kMostMixed];
  for (std::int64_t i = 0; i < lines.count; ++i) rows[i] = from + lines.line[i] * input_row();
  mix_to_floats<T>(rows, lines.weight, lines.count, input_row(), mixed);
  if constexpr (std::is_same_v<T, float>) {
    gather(mixed, to);
  } else {
    gather(mixed, gathered);
    const float one = 1;
    mix_floats<T>(&gathered, &one, 1, result_row(), to);
  }
}

// Pieces of a row, of as many pixels as see what fits the room.
template <class T>
void Resampler::run_last(const Lines& lines, const T* from, float* room, T* to) const noexcept {
  const T* rows[kMostMixed];
  const float* pixels[kMostMixed];
  const auto mix_all = mix_floats<T>.of(simd_level());
  const auto place = [&](std::int64_t tap) {
    return columns_.place[static_cast<std::size_t>(tap)];
  };
  const auto begin = [&](std::int64_t x) { return columns_.begin[static_cast<std::size_t>(x)]; };
  for (std::int64_t x = 0; x < columns_.to();) {
    std::int64_t end = x, first = columns_.from, behind = 0;
    for (; end < columns_.to(); ++end) {
      if (begin(end) == begin(end + 1)) continue;
      const std::int64_t least = std::min<std::int64_t>(first, place(begin(end)));
      const std::int64_t most = std::max<std::int64_t>(behind, place(begin(end + 1) - 1) + 1);
      if (end > x && (most - least) * channels_ > kPiece) break;
      first = least;
      behind = most;
    }
    if (first < behind) {
      for (std::int64_t i = 0; i < lines.count; ++i) {
        rows[i] = from + lines.line[i] * input_row() + first * channels_;
      }
      mix_to_floats<T>(rows, lines.weight, lines.count, (behind - first) * channels_, room);
    }
    for (; x < end; ++x) {
      const std::int64_t taps = begin(x + 1) - begin(x);
      for (std::int64_t t = 0; t < taps; ++t) {
        pixels[t] = room + (place(begin(x) + t) - first) * channels_;
      }
      mix_all(pixels, columns_.weight.data() + begin(x), taps, channels_, to + x * channels_);
    }
  }
}

template <class T>
void Resampler::copy_row(const T* from, T* to) const noexcept {
  if (!last_) {
    if constexpr (std::is_same_v<T, float>) {
      take_elements(columns_.place.data(), from, result_row(), to);
    } else {
      for (std::size_t x = 0; x < columns_.place.size(); ++x) to[x] = from[columns_.place[x]];
    }
    return;
  }
  for (std::int64_t x = 0; x < columns_.to(); ++x) {
    std::copy_n(from + columns_.place[static_cast<std::size_t>(x)] * channels_, channels_,
                to + x * channels_);
  }
}

template <class T>
void Resampler::run(std::int64_t first, std::int64_t last, const T* from, float* room,
                    T* to) const noexcept {
  LineList list(*this);
  // A row with a zero behind it, and those that have been gathered.
  float* const widened = room;
  HeldRows held(*this, room + row_pitch(input_row() + 1));
  if (!last_) widened[input_row()] = 0;
  const auto mix_all = mix_floats<T>.of(simd_level());
  auto z = static_cast<std::size_t>(first / rows_.to());
  auto y = static_cast<std::size_t>(first % rows_.to());
  std::int64_t copied = -1;
  for (std::int64_t row = first; row < last; ++row) {
    T* const result = to + row * result_row();
    const Lines lines = list.of(z, y);
    if (++y == static_cast<std::size_t>(rows_.to())) {
      y = 0;
      ++z;
    }
    if (copies_ && std::exchange(copied, lines.line[0]) == lines.line[0]) {
      std::copy_n(result - result_row(), result_row(), result);
    } else if (copies_) {
      copy_row(from + lines.line[0] * input_row(), result);
    } else if (last_) {
      run_last(lines, from, room, result);
    } else if (gathers_first_) {
      const float* mixed[kMostMixed];
      for (std::int64_t i = 0; i < lines.count; ++i) {
        mixed[i] = held.get(lines.line[i], lines.slot[i], from, widened);
      }
      mix_all(mixed, lines.weight, lines.count, result_row(), result);
    } else {
      mix_then_gather(lines, from, room, result);
    }
  }
}

#define LOOM_INSTANTIATE(T) \
  template void Resampler::run(std::int64_t, std::int64_t, const T*, float*, T*) const noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::pool_resample
