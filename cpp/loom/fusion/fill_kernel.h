// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The kernel of bodies that give all elements of a row the same value: masks of ones, cleared
// memory, a number for each row. A lane of a vector is as wide as the type in registers, so that
// elements of one or two bytes would be stored a quarter or half a vector at a time; here they are
// repeated as the bytes that they are.
// Thread: immutable.

#include "loom/fusion/kernel.h"

namespace loom::fusion {

/// Whether a body computes values of rows only and has narrow outputs of elements to fill.
[[nodiscard]] bool fills(const Body& body);

/// Computes a row's values with the interpreter, for the same bits, and repeats them.
/// Requires: fills(body).
[[nodiscard]] std::shared_ptr<const Kernel> make_fill_kernel(const Body& body);

}  // namespace loom::fusion
