// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the files that are compiled for one instruction set offer to the others. A program that
// links without them (a build without torch, which has Sleef) finds null here.

#include "loom/fusion/op.h"
#include "loom/fusion/primitives.h"
#include "loom/fusion/vector_math.h"

namespace loom::fusion {

[[nodiscard, gnu::weak]] VectorFunction avx2_vector_function(Op op, Type type) noexcept;
[[nodiscard, gnu::weak]] VectorFunction avx512_vector_function(Op op, Type type) noexcept;

[[nodiscard, gnu::weak]] const Primitives& avx2_primitives() noexcept;
[[nodiscard, gnu::weak]] const Primitives& avx512_primitives() noexcept;

}  // namespace loom::fusion
