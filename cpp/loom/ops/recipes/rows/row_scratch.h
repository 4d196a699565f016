// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the kernels of rows need beside the tensors. Thread: each has its own memory.

#include "loom/kernels/copy/copy_bytes.h"
#include "loom/kernels/copy/transpose_tile.h"
#include "loom/kernels/norm/numbers.h"
#include "loom/kernels/row_pitch.h"
#include "loom/ops/launch/tensor_ref.h"
#include "loom/simd/half.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace loom::ops {

/// Longer rows do not stay in a core's cache, and are left to ATen.
inline constexpr std::int64_t kMaxRowColumns = std::int64_t{1} << 16;

/// Whether kernels of rows have the dtype.
[[nodiscard]] constexpr bool is_row_element(c10::ScalarType dtype) noexcept {
  return dtype == c10::kFloat || dtype == c10::kBFloat16 || dtype == c10::kHalf;
}

/// Whether a tensor of numbers for rows or channels goes with rows of `input`: it is float32 or of
/// the same dtype. One that is not defined does.
[[nodiscard]] inline bool goes_with_rows(const at::Tensor& numbers, const at::Tensor& input) {
  return !numbers.defined() || numbers.scalar_type() == c10::kFloat ||
         numbers.scalar_type() == input.scalar_type();
}

/// Whether those of some parameters that are defined have one dtype: ATen refuses others.
[[nodiscard]] inline bool are_alike(std::initializer_list<at::Tensor> parameters) {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined()) continue;
    if (dtype != c10::ScalarType::Undefined && parameter.scalar_type() != dtype) return false;
    dtype = parameter.scalar_type();
  }
  return true;
}

/// body.operator()<T>() for the element type of kernels. Requires: is_row_element(dtype).
template <class Body>
decltype(auto) with_row_element(c10::ScalarType dtype, Body&& body) {
  if (dtype == c10::kFloat) return body.template operator()<float>();
  if (dtype == c10::kBFloat16) return body.template operator()<simd::BFloat16>();
  return body.template operator()<simd::Half>();
}

/// The elements of a tensor of that dtype.
template <class T>
[[nodiscard]] const T* row_elements(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

/// Numbers for rows or channels; none if the tensor is undefined.
[[nodiscard]] inline kernels::norm::Numbers row_numbers(const TensorRef& tensor) {
  if (!tensor.defined()) return {};
  return with_row_element(tensor.dtype(), [&]<class T>() {
    return kernels::norm::Numbers(reinterpret_cast<T*>(tensor.data()));
  });
}

/// Room for `count` rows of floats with padding, 64 bytes aligned; the thread's next call takes it
/// back. Row i begins at row_pitch(columns) * i.
[[nodiscard]] float* row_scratch(std::int64_t columns, int count);
using kernels::row_pitch;

/// A vector of parameters as floats: itself, or a copy in `room`; filled with `absent` if
/// undefined.
[[nodiscard]] const float* row_parameter(const at::Tensor& parameter, float absent, float* room,
                                         std::int64_t columns);

/// Rows of a result: written where they belong, or past the caches if the whole result is large.
template <class T>
class RowOutput {
 public:
  /// `room` takes one row. `total_bytes` is the size of the whole result.
  RowOutput(const at::Tensor& to, std::int64_t columns, float* room, std::size_t total_bytes)
      : data_(static_cast<T*>(to.mutable_data_ptr())),
        room_(reinterpret_cast<T*>(room)),
        columns_(columns),
        streaming_(total_bytes >= kernels::kStreamingBytes && row_bytes() % 64 == 0 &&
                   reinterpret_cast<std::uintptr_t>(data_) % 64 == 0) {}
  ~RowOutput() {
    if (streaming_) kernels::end_streaming();
  }
  RowOutput(const RowOutput&) = delete;
  RowOutput& operator=(const RowOutput&) = delete;

  [[nodiscard]] T* row(std::int64_t index) const noexcept {
    return streaming_ ? room_ : data_ + index * columns_;
  }
  /// The row that row() gave is complete.
  void done(std::int64_t index) const noexcept {
    if (!streaming_) return;
    kernels::stream_lines(reinterpret_cast<std::byte*>(data_ + index * columns_),
                          reinterpret_cast<const std::byte*>(room_), row_bytes());
  }

 private:
  [[nodiscard]] std::size_t row_bytes() const noexcept {
    return static_cast<std::size_t>(columns_) * sizeof(T);
  }

  T *data_, *room_;
  std::int64_t columns_;
  bool streaming_;
};

}  // namespace loom::ops
