// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Vectors with a step in memory, and loops around random numbers along them: what loops.h does
// where elements lie together. Thread: any; only what is passed is touched.

#include "loom/kernels/rng/loops.h"
#include "loom/simd/half.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace loom::kernels::rng {

/// Elements of type T: a number, simd::Half or simd::BFloat16; may be const.
template <class T>
struct SteppedVector {
  std::byte* data;
  std::int64_t step;  ///< bytes

  [[nodiscard]] bool dense() const noexcept { return step == std::int64_t{sizeof(T)}; }
  [[nodiscard]] T& operator[](std::int64_t i) const noexcept {
    return *reinterpret_cast<T*>(data + i * step);
  }
};

/// `to` becomes the number as CPU operators convert it.
template <class T, class Number>
[[gnu::always_inline]] inline void put_number(T& to, Number number) noexcept {
  if constexpr (!std::is_arithmetic_v<T>) {
    simd::round_to(to, static_cast<float>(number));
  } else if constexpr (std::is_same_v<Number, double> && std::is_integral_v<T>) {
    constexpr double kLimit = 0x1p63 - 1024;  // the largest double that an int64 holds
    to = static_cast<T>(static_cast<std::int64_t>(std::min(number, kLimit)));
  } else {
    to = static_cast<T>(number);
  }
}

/// to[i] = numbers[i], converted.
template <class T, class Number>
void store_numbers(const SteppedVector<T>& to, const Number* numbers, std::int64_t count) noexcept {
  if (!to.dense()) {
    for (std::int64_t i = 0; i < count; ++i) put_number(to[i], numbers[i]);
  } else if constexpr (std::is_same_v<Number, float> && !std::is_arithmetic_v<T>) {
    round_all<T>(numbers, &to[0], count);
  } else {
    T* const elements = &to[0];
    for (std::int64_t i = 0; i < count; ++i) put_number(elements[i], numbers[i]);
  }
}

/// to[i] = from[i], exactly.
template <class T>
void load_numbers(double* to, const SteppedVector<const T>& from, std::int64_t count) noexcept {
  if (from.dense()) {
    const T* const elements = &from[0];
    for (std::int64_t i = 0; i < count; ++i) to[i] = simd::widen(elements[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = simd::widen(from[i]);
  }
}

/// scale_kept() of elements with steps.
template <class T>
void scale_kept_elements(const SteppedVector<T>& to, const SteppedVector<const T>& from,
                         const SteppedVector<const std::uint8_t>& kept, std::int64_t count,
                         typename Computed<T>::Type scale) noexcept {
  using Real = typename Computed<T>::Type;
  if (to.dense() && from.dense() && kept.dense()) {
    return scale_kept<T>(&from[0], &kept[0], &to[0], count, scale);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    simd::round_to(to[i], simd::widen(from[i]) * static_cast<Real>(kept[i]) * scale);
  }
}

}  // namespace loom::kernels::rng
