// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the type of an operator's schema says of its arguments and results. Thread: any.

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymIntArrayRef.h>

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>

namespace loom::ops::detail {

/// What an operator returns: how many tensors, and whether they are new ones.
template <class Result>
struct ResultTraits {
  static constexpr std::size_t kCount = 1;
  static constexpr bool kNew = !std::is_reference_v<Result>;
};
template <class First, class... Rest>
struct ResultTraits<std::tuple<First, Rest...>> {
  static constexpr std::size_t kCount = 1 + sizeof...(Rest);
  static constexpr bool kNew = !std::is_reference_v<First>;
};

/// The tensor that an argument is, or null.
template <class T>
const at::Tensor* as_tensor(const T&) {
  return nullptr;
}
inline const at::Tensor* as_tensor(const at::Tensor& tensor) { return &tensor; }
inline const at::Tensor* as_tensor(const std::optional<at::Tensor>& tensor) {
  return tensor ? &*tensor : nullptr;
}

/// The schema with integers in place of SymInts, which the dispatcher unpacks.
template <class T>
struct Concrete {
  using Type = T;
};
template <>
struct Concrete<c10::SymInt> {
  using Type = std::int64_t;
};
template <>
struct Concrete<c10::SymIntArrayRef> {
  using Type = c10::IntArrayRef;
};
template <>
struct Concrete<at::OptionalSymIntArrayRef> {
  using Type = at::OptionalIntArrayRef;
};
template <>
struct Concrete<std::optional<c10::SymInt>> {
  using Type = std::optional<std::int64_t>;
};
template <class Result, class... Argument>
struct Concrete<Result(Argument...)> {
  using Type = Result(typename Concrete<Argument>::Type...);
};
template <class Op>
using Schema = typename Concrete<typename Op::schema>::Type;

}  // namespace loom::ops::detail
