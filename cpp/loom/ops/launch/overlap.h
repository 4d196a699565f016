// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Operands that share memory with what an operator writes. ATen's kernels refuse some of them, each
// kernel others, and on the worker they cannot see it: aliases have a storage each. So calls with
// such operands are left to the fallback, whose aliases share storages as the operands do; then the
// CPU operator decides. Thread: any.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <span>
#include <vector>

namespace loom::ops {

/// Where the written operands are among others.
struct WrittenRange {
  std::size_t first, count;
};

/// True if two elements of a written operand have one place, or some of them are certainly those of
/// another operand. Operands may be null. `may_coincide`: those that are wholly in the same places,
/// element for element, do not count.
[[nodiscard]] bool operands_overlap(std::span<const at::Tensor* const> operands,
                                    WrittenRange written, bool may_coincide);

/// The same for the arguments of a call; `writes` says which of them are written.
[[nodiscard]] bool arguments_overlap(std::span<const c10::IValue> arguments,
                                     const std::vector<bool>& writes);

}  // namespace loom::ops
