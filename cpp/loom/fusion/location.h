// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a program iterates over, and how operands lie in memory, seen from there. Thread: values.

#include "loom/fusion/expression.h"
#include "loom/fusion/op.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::fusion {

inline constexpr int kMaxDims = 8;
using Dims = std::array<std::int64_t, kMaxDims>;
using Sizes = std::span<const std::int64_t>;

[[nodiscard]] bool equal(Sizes a, Sizes b) noexcept;
[[nodiscard]] std::int64_t product(Sizes sizes) noexcept;

/// What a program iterates over.
struct Space {
  int dims = 0;
  int reduced_dims = 0;  ///< the last dimensions that its reductions reduce; 0 = it has none
  Dims sizes{}, strides{};
  std::int64_t numel = 1;
  bool contiguous = true;

  [[nodiscard]] int row_dims() const noexcept { return dims - reduced_dims; }
};

/// The space of an operand's sizes, with its strides if it is dense.
[[nodiscard]] Space space_of(const TensorAccess& access) noexcept;
/// True for the sizes of the rows of a space, reduced dimensions left out or of size 1.
[[nodiscard]] bool row_shaped(Sizes sizes, const Space& space) noexcept;

/// How an operand lies in a space.
enum class Layout : std::uint8_t {
  kFull,     ///< with the space's own strides
  kRow,      ///< one element a row, in the rows' order
  kOne,      ///< one element
  kGeneral,  ///< any other strides
};

/// A place in memory, seen from a space.
struct Location {
  std::byte* data;
  const std::byte* begin;  ///< the range of memory that it spans
  const std::byte* end;
  DType dtype;
  Layout layout;
  std::int64_t strides[kMaxDims];  ///< in elements; 0 where it is broadcast

  /// False only if they have no element in common. Elements of two that have the same strides may
  /// lie between each other, as the halves of each row of a tensor do.
  [[nodiscard]] bool overlaps(const Location& other, const Space& space) const noexcept {
    if (begin >= other.end || other.begin >= end) return false;
    // Those that begin at one element share it, and a space's own strides leave no gaps.
    if (data == other.data || (layout == Layout::kFull && other.layout == Layout::kFull))
      return true;
    return !lies_between(other, space);
  }
  /// True if every point of the space sees the same element in both, whatever the layouts are
  /// called.
  [[nodiscard]] bool same(const Location& other, const Space& space) const noexcept {
    return data == other.data && dtype == other.dtype &&
           ((layout == other.layout && layout != Layout::kGeneral) || has_strides_of(other, space));
  }
  /// In elements, along dimension `d` of the space.
  [[nodiscard]] std::int64_t stride(int d, const Space& space) const noexcept;
  /// True if no two elements may be the same one, as windows of an unfolded tensor are: then it
  /// would matter in which order they are written.
  [[nodiscard]] bool distinct(const Space& space) const noexcept;
  /// True if all columns of a row see the same element; without reductions, if all elements do.
  [[nodiscard]] bool uniform(const Space& space) const noexcept;

 private:
  [[nodiscard]] bool has_strides_of(const Location& other, const Space& space) const noexcept;
  [[nodiscard]] bool lies_between(const Location& other, const Space& space) const noexcept;
};

}  // namespace loom::fusion
