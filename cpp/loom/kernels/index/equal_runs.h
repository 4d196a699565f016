// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs of equal elements in a vector, block by block. Templates, to be compiled where the type is
// known. Thread: any.

#include "loom/kernels/comparable.h"
#include "loom/kernels/index/chosen.h"

#include <cstdint>

namespace loom::kernels::index {

/// Chooses elements that are not as the one before. Requires: there is one.
template <class T>
struct Differs {
  const T* elements;
  [[nodiscard]] bool operator()(std::int64_t i) const noexcept {
    return comparable(elements[i]) != comparable(elements[i - 1]);
  }
};

/// The runs of a vector of integers, float, double, simd::Half or simd::BFloat16.
template <class T>
class Runs {
 public:
  explicit Runs(const T* elements) noexcept : elements_(elements), differs_{elements} {}

  /// How many start among elements [begin, end).
  [[nodiscard]] std::int64_t count(std::int64_t begin, std::int64_t end) const noexcept {
    const std::int64_t first = begin == 0 ? 1 : 0;
    return first + count_chosen(differs_, begin + first, end);
  }
  /// Writes what the runs [run, last) are of, which start from `begin` on, and where they start if
  /// that is not null.
  void write(std::int64_t begin, std::int64_t run, std::int64_t last, T* values,
             std::int64_t* starts) const noexcept {
    const auto write_run = [=, from = elements_](std::int64_t r, std::int64_t i) {
      values[r] = from[i];
      if (starts != nullptr) starts[r] = i;
    };
    if (begin == 0) write_run(run++, begin++);
    write_chosen(differs_, begin, run, last, write_run);
  }
  /// Writes the run of each of elements [begin, end), the next one being `run`, to where `order`
  /// says that the element comes from, or in their order if it is null.
  void number(std::int64_t begin, std::int64_t end, std::int64_t run, const std::int64_t* order,
              std::int64_t* numbers) const noexcept {
    const auto put = [=](std::int64_t i, std::int64_t number) {
      numbers[order != nullptr ? order[i] : i] = number;
    };
    if (begin == 0) put(begin++, run++);
    const Differs<T> differs = differs_;
    for (std::int64_t i = begin; i < end; ++i) {
      run += differs(i) ? 1 : 0;
      put(i, run - 1);
    }
  }

 private:
  const T* const elements_;
  const Differs<T> differs_;
};

/// Of where `runs` of `total` elements start it makes how long they are.
inline void lengths_of_runs(std::int64_t* starts, std::int64_t runs, std::int64_t total) noexcept {
  for (std::int64_t r = 0; r < runs; ++r) {
    starts[r] = (r + 1 < runs ? starts[r + 1] : total) - starts[r];
  }
}

}  // namespace loom::kernels::index
