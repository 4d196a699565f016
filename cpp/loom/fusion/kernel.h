// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A kernel runs a body. There are two kinds: the interpreter, which works everywhere and is the
// oracle, and machine code made for the body. Both give the same bits.
// Thread: kernels are immutable; run() may be called by several threads at once.

#include "loom/fusion/body.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace loom::fusion {

/// Where an operand is. Elements of a row are contiguous; `row_stride` (bytes) may be 0 or
/// negative.
struct Place {
  std::byte* data = nullptr;
  std::int64_t row_stride = 0;
};

/// A number given to a run, in the member that its type in Body::params says.
union Param {
  bool mask;
  std::int32_t int32;
  std::int64_t int64;
  float float32;
  double float64;
};

struct Arguments {
  std::int64_t rows = 0, columns = 0;
  const Place* inputs = nullptr;
  const Place* outputs = nullptr;
  const Param* params = nullptr;
  /// Kernel::scratch_bytes(columns) bytes, aligned to 64, that this run has to itself.
  std::byte* scratch = nullptr;
};

/// An output may be an input: the same address and strides and an element size that is the same.
/// Outputs of elements are stored in the last phase, each after the loads of the elements that it
/// replaces; other operands do not overlap with outputs.
class Kernel {
 public:
  virtual ~Kernel() = default;
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  virtual void run(const Arguments& arguments) const noexcept = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes(std::int64_t columns) const noexcept = 0;
};

/// An interpreter of `body`, with the widest SIMD that the processor has. Requires: a valid body.
[[nodiscard]] std::shared_ptr<const Kernel> make_interpreter(const Body& body);

/// Machine code for `body`, or null where there is none: on other processors, for types and
/// operations that it does not know, for bodies that need more registers than there are, and with
/// LOOM_FUSION_JIT=0. Costs some tens of microseconds. Requires: a valid body.
[[nodiscard]] std::shared_ptr<const Kernel> compile(const Body& body);

}  // namespace loom::fusion
