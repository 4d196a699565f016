// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Elements of any type as what can be compared. Thread: any.

#include "loom/simd/half.h"

#include <type_traits>

namespace loom::kernels {

template <class T>
[[nodiscard]] auto comparable(T element) noexcept {
  if constexpr (std::is_integral_v<T>) {
    return element;
  } else {
    return simd::widen(element);
  }
}

}  // namespace loom::kernels
