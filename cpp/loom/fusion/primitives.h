// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The loops that the interpreter is made of: one operation on the elements of a tile. Each
// instruction set has its own set of them, and all give the same bits but for vector_function()'s.
// In tiles, values of kMask are bytes that are 0 or 1, others what their type says.
// Thread: any.

#include "loom/fusion/op.h"

#include <cstdint>

namespace loom::fusion {

/// out[i] = f(a[i], b[i], c[i]) for i < n. An operand may be `out` itself if its elements have the
/// same size.
using Primitive = void (*)(void* out, const void* a, const void* b, const void* c, std::int64_t n);

/// Operands of which element 0 is used for all i.
enum UniformOperands : unsigned { kUniformA = 1, kUniformB = 2, kUniformC = 4 };

struct Primitives {
  /// For an instruction; the operands in `uniform` are uniform, though not all of them. Reductions
  /// accumulate a[0..n) into the kReductionLanes elements of out. Null if there is no such
  /// operation.
  Primitive (*instruction)(Op op, Type type, unsigned uniform);
  /// Sets the lanes of a reduction to what they start at.
  Primitive (*start)(Op op, Type type);
  /// out[0] = what the lanes at a give together.
  Primitive (*finish)(Op op, Type type);
  /// From memory into a tile, and back.
  Primitive (*load)(DType dtype);
  Primitive (*store)(DType dtype);
  /// out[i] = a[0], and out[i] = a[i] past the caches, for elements of so many bytes. The latter
  /// wants out aligned to 64 bytes.
  Primitive (*fill)(std::size_t size);
  Primitive (*stream)(std::size_t size);
};

[[nodiscard]] const Primitives& scalar_primitives() noexcept;

}  // namespace loom::fusion
