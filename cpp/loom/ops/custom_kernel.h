// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How an operator library outside of loom runs its kernels on loom: launch() notes where the
// operands are, queues a command on the current stream of their device and returns. The command
// calls the kernel with CPU tensors over the same memory, once for each block of the result, on the
// device's cores. examples/cpp/custom_ops uses it.
// The caller has checked shapes and dtypes and has allocated the results (at::empty).
// Thread: any; the current stream is the calling thread's. Kernels run on threads of the device,
// several blocks of one at once, and must write nothing but their block. Errors that they throw
// are raised at the next synchronisation, and at every look at what they should have written.

#include "loom/base/export.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace loom {

// How a kernel is cut into blocks. It depends on shapes only, so results do not depend on the
// number of cores. `cost` is work relative to the addition of two floats (about 0.3 ns when memory
// is near): what is cheap stays one block.

/// One block: the kernel sees all operands whole.
struct Whole {};

/// All operands broadcast to the first. A block is a part of each, perhaps as a vector of elements
/// in the order of memory. `cost` is that of one element.
struct Pointwise {
  double cost = 1;
};

/// A block is a range of dimension dims[i] of operand i (kWhole: the operand is not cut); all these
/// dimensions have the same length. `cost` is that of one item along it.
struct Along {
  static constexpr std::int8_t kWhole = -1;
  std::vector<std::int8_t> dims;
  double cost = 1;
};

using Split = std::variant<Whole, Pointwise, Along>;

/// A tensor and what the kernel does with it. What is not marked is read. It is a tensor of the
/// device that the kernel runs on, a CPU tensor without dimensions, whose value is copied, or
/// undefined, and is so for the kernel too.
struct Operand {
  enum class Use : std::uint8_t {
    kRead,
    kUpdate,   ///< some elements are written, or what is written depends on what they were
    kReplace,  ///< every element is written, whatever it was
  };
  Operand(const at::Tensor& read) : tensor(read) {}
  Operand(const at::Tensor& given, Use used) : tensor(given), use(used) {}

  const at::Tensor& tensor;
  Use use = Use::kRead;
};
[[nodiscard]] inline Operand out(const at::Tensor& tensor) {
  return {tensor, Operand::Use::kReplace};
}
[[nodiscard]] inline Operand inout(const at::Tensor& tensor) {
  return {tensor, Operand::Use::kUpdate};
}

namespace detail {

using BlockKernel = std::function<void(std::span<const at::Tensor>)>;
LOOM_API void launch(const char* name, const Split& split, std::span<const Operand> operands,
                     BlockKernel kernel);

}  // namespace detail

/// Queues kernel(first, others...) on the current stream of the first operand's device. `name` is
/// the operator's in errors and profiles, and lives for ever (a literal). The kernel is copied into
/// the command; it must not hold loom tensors, whose memory it could not announce.
/// Throws: c10::Error for operands on several devices, and for a split that does not fit them.
template <class Kernel, class... Others>
void launch(const char* name, const Split& split, Kernel kernel, const Operand& first,
            const Others&... others) {
  const std::array<Operand, 1 + sizeof...(others)> operands{first, Operand(others)...};
  detail::launch(name, split, operands,
                 [kernel = std::move(kernel)](std::span<const at::Tensor> blocks) {
                   [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
                     kernel(blocks[kIndex]...);
                   }(std::make_index_sequence<1 + sizeof...(Others)>());
                 });
}

}  // namespace loom
