// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tensors as kernels see them. Thread: values.

#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::kernels {

/// Elements of one size in memory that somebody else keeps valid.
struct TensorView {
  std::byte* data = nullptr;                     ///< host-accessible address of the first element
  std::span<const std::int64_t> sizes, strides;  ///< strides in elements
  std::size_t item_bytes = 0;
};

}  // namespace loom::kernels
