// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where the elements are that are not zero: what operators are made of whose result has as many
// elements as the data say (nonzero, masked_select, unique). A first command counts in blocks, all
// cores together; the host waits once, for the sum; a second command fills the result, again in
// blocks, each of which knows where its part begins. Thread: any.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace loom::ops {

/// Elements of a tensor in row-major order, in blocks (blocks.h).
struct Counted {
  at::Tensor elements;  ///< contiguous
  at::Tensor before;    ///< on the device: how many are not zero before each block, and in all
  std::int64_t total = 0;
};

/// Waits for the number of elements that are not zero. Throws: an error named `name` if the dtype
/// has no zero, while the stream is captured, and what the wait throws.
[[nodiscard]] Counted count_nonzero_blocks(const char* name, const at::Tensor& self);

/// Queues the filling of `result` (counted.total rows, a column for each dimension of `self`, any
/// strides, int64) with the places.
void launch_positions(const char* name, const at::Tensor& result, const Counted& counted);

/// The places in a vector, as a vector.
[[nodiscard]] at::Tensor vector_positions(const char* name, const at::Tensor& vector);

}  // namespace loom::ops
