// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// oneDNN's block kernel (brgemm), which libtorch exports. ATen keeps a kernel for each thread and
// each shape, strides included, for ever: 20 KB and 100 us of code generation each. Here a thread
// has kernels for the shapes that it meets first or uses much; blocks of others are copied into
// blocks of few shapes, which costs a part of what they take, and changes no bit of the result.
// Thread: any.

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace loom::ops {

struct BlockShape {
  std::int64_t rows, columns, inner;
  std::int64_t left_ld, right_ld, to_ld;  ///< elements from row to row
  bool add;                               ///< to what is there

  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

/// to (+)= left x right, row-major; a right operand of bfloat16 has its rows in pairs.
/// Requires: at most kPanel columns (multiply.h), of float32 kMaxColumns; can_multiply<T>() when it
/// was submitted.
void multiply_block(const BlockShape& shape, const float* left, const float* right, float* to);
void multiply_block(const BlockShape& shape, const c10::BFloat16* left, const c10::BFloat16* right,
                    float* to);

}  // namespace loom::ops
