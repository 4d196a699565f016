// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/tap_rows.h"

#include "loom/simd/vector_bytes.h"

#include <cstring>
#include <utility>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

constexpr int kWidest = simd::kVectorBytes / sizeof(float);

template <int kCount>
struct Vector {
  using Type [[gnu::vector_size(kCount * sizeof(float))]] = float;
};

template <int kCount, bool kAdd>
[[gnu::always_inline]] inline void value(const float* from, const float* to,
                                         typename Vector<kCount>::Type& result) {
  std::memcpy(&result, from, sizeof result);
  if constexpr (kAdd) {
    typename Vector<kCount>::Type before;
    std::memcpy(&before, to, sizeof before);
    result += before;
  }
}

// Whole vectors, the last of which may overlap the one before: it is computed first.
template <int kCount, bool kAdd>
[[gnu::always_inline]] inline void move_vectors(const float* from, float* to, std::int64_t count) {
  typename Vector<kCount>::Type last, next;
  value<kCount, kAdd>(from + count - kCount, to + count - kCount, last);
  for (std::int64_t i = 0; i + kCount < count; i += kCount) {
    value<kCount, kAdd>(from + i, to + i, next);
    std::memcpy(to + i, &next, sizeof next);
  }
  std::memcpy(to + count - kCount, &last, sizeof last);
}

template <bool kAdd>
[[gnu::always_inline]] inline void move_piece(const float* from, float* to, std::int64_t count) {
  if (kWidest >= 16 && count >= 16) return move_vectors<16, kAdd>(from, to, count);
  if (kWidest >= 8 && count >= 8) return move_vectors<8, kAdd>(from, to, count);
  if (count >= 4) return move_vectors<4, kAdd>(from, to, count);
  if (count >= 2) return move_vectors<2, kAdd>(from, to, count);
  *to = kAdd ? *to + *from : *from;
}

// Every second element: the second vector begins early, so as to read none that is not meant.
template <int kCount, int... kIndex>
[[gnu::always_inline]] inline void take_even_vectors(const float* from, float* to,
                                                     std::int64_t count,
                                                     std::integer_sequence<int, kIndex...>) {
  for (std::int64_t i = 0; i < count; i += kCount) {
    const std::int64_t at = i < count - kCount ? i : count - kCount;
    typename Vector<kCount>::Type low, high;
    std::memcpy(&low, from + 2 * at, sizeof low);
    std::memcpy(&high, from + 2 * at + kCount - 1, sizeof high);
    const auto even =
        __builtin_shufflevector(low, high, (2 * kIndex < kCount ? 2 * kIndex : 2 * kIndex + 1)...);
    std::memcpy(to + at, &even, sizeof even);
  }
}
template <int kCount>
[[gnu::always_inline]] inline void take_even_vectors(const float* from, float* to,
                                                     std::int64_t count) {
  take_even_vectors<kCount>(from, to, count, std::make_integer_sequence<int, kCount>());
}

[[gnu::always_inline]] inline void take_even(const float* from, float* to, std::int64_t count) {
  if (kWidest >= 16 && count >= 16) return take_even_vectors<16>(from, to, count);
  if (kWidest >= 8 && count >= 8) return take_even_vectors<8>(from, to, count);
  if (count >= 4) return take_even_vectors<4>(from, to, count);
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
}

// Adds to every second element. What lies between two of them is written as it was, so that the
// last one is left to fewer lanes: what lies behind it may be another core's.
template <int kCount, int... kIndex>
[[gnu::always_inline]] inline std::int64_t add_even_vectors(const float* from, float* to,
                                                            std::int64_t i, std::int64_t count,
                                                            std::integer_sequence<int, kIndex...>) {
  constexpr typename Vector<kCount>::Type kZeros{};
  for (; i + kCount < count; i += kCount) {
    typename Vector<kCount>::Type values;
    typename Vector<2 * kCount>::Type result;
    std::memcpy(&values, from + i, sizeof values);
    std::memcpy(&result, to + 2 * i, sizeof result);
    result += __builtin_shufflevector(values, kZeros, (kIndex % 2 == 0 ? kIndex / 2 : kCount)...);
    std::memcpy(to + 2 * i, &result, sizeof result);
  }
  return i;
}
template <int kCount>
[[gnu::always_inline]] inline std::int64_t add_even_vectors(const float* from, float* to,
                                                            std::int64_t i, std::int64_t count) {
  if constexpr (kCount > kWidest / 2 && kCount > 2) {
    return i;
  } else {
    return add_even_vectors<kCount>(from, to, i, count,
                                    std::make_integer_sequence<int, 2 * kCount>());
  }
}
[[gnu::always_inline]] inline void add_even(const float* from, float* to, std::int64_t count) {
  std::int64_t i = add_even_vectors<8>(from, to, 0, count);
  i = add_even_vectors<4>(from, to, i, count);
  i = add_even_vectors<2>(from, to, i, count);
  for (; i < count; ++i) to[2 * i] += from[i];
}

template <std::int64_t kStep>
[[gnu::always_inline]] inline void gather(const float* image, const TapRows& tap, float* column,
                                          std::int64_t step) {
  for (std::int64_t i = 0; i < tap.count; ++i) {
    const Piece piece = tap.pieces[i];
    const float* from = image + piece.image;
    float* to = column + piece.column;
    if constexpr (kStep == 1) {
      move_piece<false>(from, to, piece.count);
    } else if constexpr (kStep == 2) {
      take_even(from, to, piece.count);
    } else {
      for (std::int64_t j = 0; j < piece.count; ++j) to[j] = from[j * step];
    }
  }
}

}  // namespace

void make_rows(const float* image, const TapRows& tap, float* column) noexcept {
  for (std::int64_t c = 0; c < tap.channels; ++c) {
    for (std::int64_t i = 0; i < tap.zeros; ++i) column[i] = 0;
    if (tap.step == 1) {
      gather<1>(image, tap, column, 1);
    } else if (tap.step == 2) {
      gather<2>(image, tap, column, 2);
    } else {
      gather<0>(image, tap, column, tap.step);
    }
    image += tap.image_step;
    column += tap.column_step;
  }
}

void add_rows(const float* column, const TapRows& tap, float* image) noexcept {
  for (std::int64_t c = 0; c < tap.channels; ++c) {
    for (std::int64_t i = 0; i < tap.count; ++i) {
      const Piece piece = tap.pieces[i];
      const float* from = column + piece.column;
      float* to = image + piece.image;
      if (tap.step == 1) {
        move_piece<true>(from, to, piece.count);
      } else if (tap.step == 2) {
        add_even(from, to, piece.count);
      } else {
        for (std::int64_t j = 0; j < piece.count; ++j) to[j * tap.step] += from[j];
      }
    }
    image += tap.image_step;
    column += tap.column_step;
  }
}

}  // namespace loom::kernels::conv::LOOM_SIMD
