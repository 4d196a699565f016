// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Elements that are counted, weighed or repeated by what they are or how often they are named.
// Templates, to be compiled where the types are known. Thread: any.

#include <algorithm>
#include <cstdint>

namespace loom::kernels::index {

template <class T>
struct LeastAndMost {
  T least, most;
};

/// Requires: begin < end.
template <class T>
LeastAndMost<T> least_and_most(const T* from, std::int64_t begin, std::int64_t end) noexcept {
  LeastAndMost<T> found{from[begin], from[begin]};
  for (std::int64_t i = begin; i < end; ++i) {
    found.least = std::min(found.least, from[i]);
    found.most = std::max(found.most, from[i]);
  }
  return found;
}

/// Adds to `bins` how often each is among elements [begin, end). Which: what has operator[].
template <class Which>
void count_into(std::int64_t* bins, const Which& which, std::int64_t begin,
                std::int64_t end) noexcept {
  for (std::int64_t i = begin; i < end; ++i) ++bins[static_cast<std::int64_t>(which[i])];
}

/// Adds the weights of `count` elements to their bins, in order.
template <class T, class Weight>
void weigh_into(Weight* bins, const T* which, const Weight* weights, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) bins[static_cast<std::int64_t>(which[i])] += weights[i];
}

/// Writes each number of [begin, end) `times` times, up to its end, of `total` elements. False if
/// one does not fit there; it and what follows is then not written.
template <class T>
[[nodiscard]] bool repeat_numbers(T* to, std::int64_t total, const T* times,
                                  const std::int64_t* ends, std::int64_t begin,
                                  std::int64_t end) noexcept {
  for (std::int64_t i = begin; i < end; ++i) {
    // What is negative is larger than all others.
    const auto stop = static_cast<std::uint64_t>(ends[i]);
    const auto length = static_cast<std::uint64_t>(times[i]);
    if (length > stop || stop > static_cast<std::uint64_t>(total)) return false;
    std::fill_n(to + (stop - length), length, static_cast<T>(i));
  }
  return true;
}

}  // namespace loom::kernels::index
