// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A loop nest of a compiled graph (torch.compile) that is recorded like an operator, so that it may
// share a program with what comes before and after it: a product's epilogue, another nest. What it
// computes is given once, as steps of an expression (fusion/expression.h); a launch brings tensors.
// Thread: any.

#include "loom/base/export.h"
#include "loom/fusion/expression.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace loom::ops {

/// The dtype in programs. Throws: c10::ValueError for those that have no kernels there.
[[nodiscard]] LOOM_API fusion::DType program_dtype(c10::ScalarType dtype);
/// The operation that op.h calls so. Throws: c10::ValueError if there is none.
[[nodiscard]] LOOM_API fusion::Op program_op(std::string_view name);
/// torch.empty_strided() for generated code. Throws: as that.
[[nodiscard]] LOOM_API at::Tensor empty_result(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                               c10::ScalarType dtype, c10::DeviceIndex device);

class LOOM_API CompiledProgram {
 public:
  /// How a nest sees one of the tensors that it is launched with.
  struct Operand {
    std::size_t tensor;  ///< its place among them
    c10::ScalarType dtype;
    std::int64_t offset;  ///< of the first element from the tensor's, in elements
    /// As many as the nest has dimensions, but for single elements; in elements. A size is the
    /// nest's or 1.
    std::vector<std::int64_t> sizes, strides;
  };
  /// Operands of steps are numbers of earlier steps.
  struct Load {
    std::size_t operand;  ///< of the device, or a number of the host: a cpu tensor of no dimensions
  };
  struct Number {
    fusion::Type type;
    std::variant<std::int64_t, double> value;
  };
  struct Apply {
    fusion::Op op;
    std::size_t a, b, c;
  };
  struct Convert {
    std::variant<fusion::Type, fusion::DType> to;
    std::size_t a;
  };
  struct Store {
    std::size_t operand, a;
  };
  using Step = std::variant<Load, Number, Apply, Convert, Store>;

  /// `reduced_dims`: how many of the last dimensions reductions reduce.
  /// Throws: c10::ValueError for what no expression says: operands that there are not yet,
  /// operations of other types.
  CompiledProgram(std::string_view name, int reduced_dims, std::vector<Operand> operands,
                  std::vector<Step> steps);

  /// Whether loom has machine code for it; else generated loops are faster.
  [[nodiscard]] bool runs_as_machine_code() const;

  /// Records the nest on the current stream of the tensors' device.
  void launch(std::span<const at::Tensor> tensors) const;

 private:
  class Draft;

  void check() const;
  [[nodiscard]] bool record(std::span<const at::Tensor> from, std::span<const at::Tensor> to) const;
  [[nodiscard]] at::Tensor copy_of(const at::Tensor& tensor, std::size_t place) const;

  const char* name_;  ///< as long as the process
  int reduced_dims_;
  std::vector<Operand> operands_;
  std::vector<Step> steps_;
};

}  // namespace loom::ops
