// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How an ATen operator becomes part of a fused program: FusedOperator turns its tensors and numbers
// into an expression, with the promotions and roundings that ATen makes, and records that on the
// current stream. Thread: one; the recording is any thread's.

#include "loom/fusion/expression.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <optional>

namespace loom::ops {

/// The dtype in fused programs, or nothing for those that have no kernels there (complex, float8).
[[nodiscard]] std::optional<fusion::DType> fusion_dtype(c10::ScalarType dtype) noexcept;

/// The most dimensions that an operand of a fused program may have.
[[nodiscard]] std::int64_t fusion_max_dims() noexcept;

/// Records self = source (a copy between tensors of one device, with its cast), or returns false.
[[nodiscard]] bool record_copy(const at::Tensor& self, const at::Tensor& source);
/// Records the fill of a dense tensor, or returns false.
[[nodiscard]] bool record_fill(const char* name, const at::Tensor& self, const c10::Scalar& value);

/// What it loads and stores has to live until it is recorded: the expression refers to its sizes.
class FusedOperator {
 public:
  using Node = fusion::Node;
  using Op = fusion::Op;

  /// `name` must be a literal. Values are computed as `common`, the dtype that the operands are
  /// promoted to: in its own precision, in float for half and bfloat16.
  FusedOperator(const char* name, c10::ScalarType common) noexcept;

  /// A device tensor's elements, or a zero-dimensional CPU tensor's number, as `common`.
  Node load(const at::Tensor& tensor);
  /// The same, a number rounded to `common` like an element.
  Node load_rounded(const at::Tensor& tensor);
  /// The same, a single element of another dtype as precise as a number: not rounded to `common`.
  Node load_factor(const at::Tensor& tensor);
  /// As its own dtype: masks, indices.
  Node load_as_is(const at::Tensor& tensor);
  /// The real (0) or imaginary (1) parts of a complex tensor, in the precision of the computation.
  Node load_part(const at::Tensor& tensor, int part);
  /// Column `index` of a contiguous tensor whose elements are rows of `columns`, as `common`.
  /// `rows`: the sizes of the column, which live until it is recorded.
  Node load_column(const at::Tensor& tensor, c10::IntArrayRef rows, std::int64_t columns,
                   std::int64_t index);
  /// A number in the precision of the computation. Gives up on one that `common` cannot hold: ATen
  /// has its own words for that.
  Node number(const c10::Scalar& value);
  Node number(double value) { return expression_.number(type_, value); }

  Node apply(Op op, Node a) { return expression_.apply(op, a); }
  Node apply(Op op, Node a, Node b) { return expression_.apply(op, a, b); }
  Node apply(Op op, Node a, Node b, Node c) { return expression_.apply(op, a, b, c); }
  Node add(Node a, Node b) { return apply(Op::kAdd, a, b); }
  Node sub(Node a, Node b) { return apply(Op::kSub, a, b); }
  Node mul(Node a, Node b) { return apply(Op::kMul, a, b); }
  Node div(Node a, Node b) { return apply(Op::kDiv, a, b); }
  Node where(Node mask, Node a, Node b) { return expression_.where(mask, a, b); }
  /// The nearest value that `common` has.
  Node rounded(Node a) { return expression_.to(common_, a); }
  Node to(fusion::Type type, Node a) { return expression_.to(type, a); }

  /// `value`, rounded to `common` and cast to the dtype of `to`.
  void store(Node value, const at::Tensor& to);
  /// Reductions from here on are over the last `dims` dimensions of the first load.
  void reduce_over_last(int dims) { expression_.reduce_over_last(dims); }

  /// False if it cannot be fused; then nothing happened. `device` is the result's.
  [[nodiscard]] bool record(c10::Device device);

  [[nodiscard]] bool possible() const noexcept { return possible_; }
  [[nodiscard]] fusion::Type type() const noexcept { return type_; }
  [[nodiscard]] fusion::DType common() const noexcept { return common_; }
  [[nodiscard]] bool floating() const noexcept { return type_ >= fusion::Type::kFloat; }
  [[nodiscard]] bool mask() const noexcept { return type_ == fusion::Type::kMask; }
  /// For what has no form for these operands.
  void give_up() noexcept { possible_ = false; }

 private:
  Node load_number(const at::Tensor& scalar);
  Node convert(const c10::Scalar& value);
  [[nodiscard]] bool holds(const c10::Scalar& value) const;
  [[nodiscard]] std::optional<fusion::TensorAccess> access(const at::Tensor& tensor,
                                                           std::optional<fusion::DType> dtype,
                                                           bool writes);

  fusion::Expression expression_;
  c10::SmallVector<std::int64_t, 8> strides_;  // of parts or columns: all have the same
  fusion::DType common_ = fusion::DType::kFloat;
  fusion::Type type_ = fusion::Type::kFloat;
  bool possible_ = true;
};

}  // namespace loom::ops
