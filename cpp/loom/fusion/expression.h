// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What one operator does to its operands, as it is handed to record(): loads, numbers, operations,
// stores. It lives on the caller's stack and refers to the operands' geometry.
// Thread: one.

#include "loom/fusion/kernel.h"
#include "loom/fusion/op.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace loom::fusion {

/// A strided operand. Sizes and strides (in elements) are the caller's and outlive the expression.
struct TensorAccess {
  std::byte* data = nullptr;  ///< host-accessible address of the first element
  DType dtype = DType::kFloat;
  std::span<const std::int64_t> sizes, strides;
  std::int64_t numel = 0;
  bool contiguous = false;
  /// The device address of the allocation that holds the data if its free is noted (freed.h), else
  /// null.
  const void* allocation = nullptr;
};

namespace detail {

/// Room for `count` objects that are written before they are read: nothing is initialised.
template <class T, std::size_t count>
class Slots {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Slots() noexcept {}  // NOLINT: on purpose not "= default", which would be deleted
  T& operator[](std::size_t i) noexcept { return items_[i]; }
  const T& operator[](std::size_t i) const noexcept { return items_[i]; }
  [[nodiscard]] const T* data() const noexcept { return items_; }

 private:
  union {
    T items_[count];
  };
};

}  // namespace detail

/// A value of an Expression: copied freely, valid for that expression.
struct Node {
  std::uint8_t index = 0;
  Type type = Type::kFloat;
};

class Expression {
 public:
  /// As much as a program has room for: an expression may be a whole loop nest of a compiled graph.
  static constexpr std::size_t kMaxLoads = Body::kMaxInputs, kMaxStores = Body::kMaxOutputs;
  static constexpr std::size_t kMaxNodes =
      Body::kMaxInputs + Body::kMaxParams + Body::kMaxInstructions;

  enum class Kind : std::uint8_t { kLoad, kNumber, kResult };
  struct Entry {
    Kind kind = Kind::kLoad;
    std::uint8_t load = 0;
    Instruction instruction;
    Param number{};
    Type type = Type::kFloat;
  };
  struct Store {
    TensorAccess to;
    std::uint8_t node = 0;
  };

  /// `name` is the operator's; it must outlive the process's reports (a literal).
  explicit Expression(const char* name) noexcept : name_(name) {}

  /// The operand, broadcast to the expression's sizes.
  Node load(const TensorAccess& from) noexcept;
  Node number(float value) noexcept;
  Node number(double value) noexcept;
  Node number(std::int32_t value) noexcept;
  Node number(std::int64_t value) noexcept;
  Node number(bool value) noexcept;
  /// A number of the given type with this value.
  Node number(Type type, double value) noexcept;

  Node apply(Op op, Node a) noexcept { return apply(op, a, a, a); }
  Node apply(Op op, Node a, Node b) noexcept { return apply(op, a, b, a); }
  Node apply(Op op, Node a, Node b, Node c) noexcept;
  /// The value as another type; itself if it has it.
  Node to(Type type, Node a) noexcept;
  /// The nearest value that `dtype` can hold, in the register type of `dtype`.
  Node to(DType dtype, Node a) noexcept;
  Node where(Node mask, Node a, Node b) noexcept { return apply(Op::kSelect, mask, a, b); }

  /// `value` must have been made for the dtype: to(dtype, ...). Stores have the sizes of the
  /// expression, or, with reductions, those of its rows.
  void store(Node value, const TensorAccess& to) noexcept;

  /// From here on rows are what is left without the last `dims` dimensions, and reductions reduce
  /// those. The first load has the expression's sizes, densely in their order, and its columns are
  /// not all the same. Requires: before the first reduction; 0 < dims <= dimensions of the loads.
  void reduce_over_last(int dims) noexcept { reduced_dims_ = static_cast<std::int8_t>(dims); }

  /// Says that the operator need not share a program with what it has no memory in common with: it
  /// is one of a call that works on many tensors, or more than an operator.
  void set_independent(bool independent) noexcept { independent_ = independent; }
  [[nodiscard]] bool independent() const noexcept { return independent_; }

  /// False once more was added than there is room for.
  [[nodiscard]] bool fits() const noexcept { return fits_; }
  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] std::span<const TensorAccess> loads() const noexcept {
    return {loads_.data(), load_count_};
  }
  [[nodiscard]] std::span<const Entry> entries() const noexcept {
    return {entries_.data(), entry_count_};
  }
  [[nodiscard]] std::span<const Store> stores() const noexcept {
    return {stores_.data(), store_count_};
  }
  [[nodiscard]] int reduced_dims() const noexcept { return reduced_dims_; }

 private:
  Node add(const Entry& entry) noexcept;
  Node add_number(Type type, Param value) noexcept;

  const char* name_;
  std::uint8_t load_count_ = 0, entry_count_ = 0, store_count_ = 0;
  std::int8_t reduced_dims_ = 0;
  bool fits_ = true, independent_ = false;
  detail::Slots<TensorAccess, kMaxLoads> loads_;
  detail::Slots<Entry, kMaxNodes> entries_;
  detail::Slots<Store, kMaxStores> stores_;
};

}  // namespace loom::fusion
