// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Elements as kernels see them, which know no torch. Thread: any.

#include "loom/ops/launch/tensor_ref.h"
#include "loom/simd/half.h"

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

namespace loom::ops {

template <class T>
using Stored =
    std::conditional_t<std::is_same_v<T, c10::Half>, simd::Half,
                       std::conditional_t<std::is_same_v<T, c10::BFloat16>, simd::BFloat16, T>>;
template <class T>
[[nodiscard]] Stored<T>* stored(T* elements) noexcept {
  return reinterpret_cast<Stored<T>*>(elements);
}
template <class T>
[[nodiscard]] const Stored<T>* stored(const T* elements) noexcept {
  return reinterpret_cast<const Stored<T>*>(elements);
}

/// Of a tensor that lies in memory from its first element on; null if it is undefined.
template <class T>
[[nodiscard]] T* elements(const TensorRef& tensor) noexcept {
  return tensor.defined() ? reinterpret_cast<T*>(tensor.data()) : nullptr;
}

/// Calls function(T()) for the dtype of float, c10::BFloat16 or c10::Half.
template <class Function>
void with_floats(c10::ScalarType dtype, Function&& function) {
  if (dtype == c10::ScalarType::Float) {
    function(float());
  } else if (dtype == c10::ScalarType::BFloat16) {
    function(c10::BFloat16());
  } else {
    function(c10::Half());
  }
}

}  // namespace loom::ops
