// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Draws from categories with weights, with replacement: the sums of the first 1, 2, ... weights are
// made once, then every sample is searched for in them. Thread: const members any.

#include "loom/kernels/rng/stepped_vector.h"
#include "loom/kernels/rng/word_reader.h"
#include "loom/simd/half.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::kernels::rng {

/// Why there is nothing to draw.
enum class WeightFault : std::uint8_t { kNone, kNegative, kNotFinite, kNoSum };

class Categories {
 public:
  /// Words of one sample.
  static constexpr int kWords = 2;

  /// Takes the weights of `count` categories, unless there is something wrong with them: of several
  /// ones the first is named.
  template <class T>
  [[nodiscard]] WeightFault assign(const SteppedVector<const T>& weights, std::int64_t count) {
    sums_.resize(static_cast<std::size_t>(count));
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double weight = simd::widen(weights[i]);
      if (weight < 0) return WeightFault::kNegative;
      if (!std::isfinite(weight)) return WeightFault::kNotFinite;
      sums_[static_cast<std::size_t>(i)] = sum += weight;
    }
    return sum > 0 ? WeightFault::kNone : WeightFault::kNoSum;
  }

  /// The category that u of [0, 1) falls into; never one of weight 0.
  [[nodiscard]] std::int64_t pick(double u) const {
    const double total = sums_.back();
    const double point = std::min(u * total, std::nextafter(total, 0.0));
    // The first sum beyond the point, searched without branches that nobody could predict.
    const double* first = sums_.data();
    for (std::size_t left = sums_.size(); left > 1;) {
      const std::size_t half = left / 2;
      first += first[half - 1] <= point ? half : 0;
      left -= half;
    }
    return first - sums_.data();
  }

  /// to[i] = a category drawn with the words of value `first` + i of the stream.
  void draw(const SteppedVector<std::int64_t>& to, std::int64_t count, const PhiloxStream& stream,
            std::int64_t first) const {
    WordReader<kWords> reader(stream, first);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto [low, high] = reader.next();
      const std::uint64_t bits = low | std::uint64_t{high} << 32;
      to[i] = pick(static_cast<double>(bits >> 11) * 0x1p-53);
    }
  }

 private:
  std::vector<double> sums_;
};

}  // namespace loom::kernels::rng
