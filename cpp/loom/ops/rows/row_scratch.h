// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the kernels of rows need beside the tensors. Thread: each has its own memory.

#include "loom/kernels/copy/copy_bytes.h"
#include "loom/kernels/copy/transpose_tile.h"
#include "loom/kernels/row_pitch.h"
#include "loom/ops/rows/row_kernels.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace loom::ops {

/// Longer rows do not stay in a core's cache, and are left to ATen.
inline constexpr std::int64_t kMaxRowColumns = std::int64_t{1} << 16;

/// The element type of kernels for `dtype`, if there are any.
[[nodiscard]] std::optional<RowElement> row_element(c10::ScalarType dtype) noexcept;

/// Room for `count` rows of floats with padding, 64 bytes aligned; the thread's next call takes it
/// back. Row i begins at row_pitch(columns) * i.
[[nodiscard]] float* row_scratch(std::int64_t columns, int count);
using kernels::row_pitch;

/// A vector of parameters as floats: itself, or a copy in `room`; filled with `absent` if
/// undefined.
[[nodiscard]] const float* row_parameter(const at::Tensor& parameter, float absent, float* room,
                                         std::int64_t columns);

/// Rows of a result: written where they belong, or past the caches if the whole result is large.
class RowOutput {
 public:
  /// `room` takes one row. `total_bytes` is the size of the whole result.
  RowOutput(const at::Tensor& to, std::int64_t columns, float* room, std::size_t total_bytes)
      : data_(static_cast<std::byte*>(to.mutable_data_ptr())),
        room_(reinterpret_cast<std::byte*>(room)),
        row_bytes_(static_cast<std::size_t>(columns) * to.itemsize()),
        streaming_(total_bytes >= kernels::kStreamingBytes && row_bytes_ % 64 == 0 &&
                   reinterpret_cast<std::uintptr_t>(data_) % 64 == 0) {}
  ~RowOutput() {
    if (streaming_) kernels::end_streaming();
  }
  RowOutput(const RowOutput&) = delete;
  RowOutput& operator=(const RowOutput&) = delete;

  [[nodiscard]] std::byte* row(std::int64_t index) const noexcept {
    return streaming_ ? room_ : data_ + static_cast<std::size_t>(index) * row_bytes_;
  }
  /// The row that row() gave is complete.
  void done(std::int64_t index) const noexcept {
    if (streaming_) {
      kernels::stream_lines(data_ + static_cast<std::size_t>(index) * row_bytes_, room_,
                            row_bytes_);
    }
  }

 private:
  std::byte* data_;
  std::byte* room_;
  std::size_t row_bytes_;
  bool streaming_;
};

}  // namespace loom::ops
