// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Products of rows and of columns of float or a half type, in float32, of double and of int64. The
// order of a product follows from the lengths and the instruction set alone. Thread: any; only what
// is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::norm {

/// What products of a type are.
template <class T>
struct ProductOf {
  using Type = decltype(simd::widen(T()));
};
template <>
struct ProductOf<std::int64_t> {
  using Type = std::int64_t;
};
template <class T>
using Product = typename ProductOf<T>::Type;

LOOM_SIMD_DECLARE(template <class T> Product<T> product_of(const T* from,
                                                           std::int64_t count) noexcept;
                  template <class T>
                  void products_of_columns(const T* from, std::int64_t rows, std::int64_t stride,
                                           Product<T>* products, std::int64_t columns) noexcept;)

/// Of all elements.
template <class T>
inline constexpr simd::Versions product_of{LOOM_SIMD_LIST(product_of<T>)};

/// Of the columns of rows that are `stride` elements apart.
template <class T>
inline constexpr simd::Versions products_of_columns{LOOM_SIMD_LIST(products_of_columns<T>)};

}  // namespace loom::kernels::norm
