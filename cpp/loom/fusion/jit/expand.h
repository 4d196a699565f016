// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Bodies in which functions of elements are replaced by the operations that they are made of
// (vector_formulas.h): a call loses all vector registers, and nothing overlaps with it.
// Thread: any.

#include "loom/fusion/body.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion::jit {

/// The most values of a body, as many as ValueId has.
inline constexpr std::size_t kMaxExpandedValues = 256;

struct Expanded {
  Body body;
  /// The bits of the numbers of kFloat that `body` has as parameters after those of the original.
  std::vector<std::uint32_t> constants;
};

/// A body for AVX-512 that gives the same bits; the same body if it would have too many values.
/// Functions that have no formula, and those of uniform values, stay.
[[nodiscard]] Expanded expand(const Body& body);

}  // namespace loom::fusion::jit
