// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What generated kernels begin with, beside PyTorch's own header for them: how they are launched,
// how loop nests become grids of blocks, and how arguments travel. It is compiled on the user's
// machine, with PyTorch's headers and not with loom's.

// PyTorch notes a division by zero in a variable of the whole process, which kernels of the cpu
// point at a place on their stack. Kernels of loom run beside those, so they have a variable of
// their own. It stays null, and so the block that divides throws.
#define inductor_cpu_integer_div_error_flag loom_integer_div_error_flag
#include <torch/csrc/inductor/cpp_prefix.h>
#undef inductor_cpu_integer_div_error_flag

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

// As in loom/ops/compiled_kernel.h, where it is described.
extern "C" {
enum LoomKernelAccess : std::uint32_t {
  kLoomKernelValue = 0,
  kLoomKernelRead = 1,
  kLoomKernelUpdate = 2,
  kLoomKernelReplace = 3,
};
struct LoomKernelArgument {
  std::uint64_t value;
  std::uint64_t bytes;
  std::uint32_t access;
};
struct LoomKernelGrid;
using LoomKernelBody = void (*)(const LoomKernelGrid* grid, const LoomKernelArgument* arguments);
void loom_kernel_launch(std::int64_t device, const char* name, LoomKernelBody body,
                        const LoomKernelArgument* arguments, std::int64_t count);
void loom_kernel_run_blocks(const LoomKernelGrid* grid, std::int64_t blocks,
                            void (*block)(void* context, std::int64_t index), void* context);
}

namespace loom_kernel {

// Arguments, as the host packs them.

template <class T>
LoomKernelArgument memory(const T* address, std::int64_t bytes, LoomKernelAccess access) {
  return {reinterpret_cast<std::uintptr_t>(address),
          address == nullptr ? 0 : static_cast<std::uint64_t>(bytes), access};
}

/// A number goes with the command by value.
template <class T>
LoomKernelArgument number(T value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  LoomKernelArgument argument{0, 0, kLoomKernelValue};
  std::memcpy(&argument.value, &value, sizeof(T));
  return argument;
}

/// So does a tensor of the host without dimensions, which the host may change or free right after
/// the launch.
template <class T>
LoomKernelArgument host_scalar(const T* address) {
  return number(*address);
}

// Arguments, as the worker unpacks them.

template <class T>
T* pointer(const LoomKernelArgument& argument) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(argument.value));
}

template <class T>
T value(const LoomKernelArgument& argument) {
  T result;
  std::memcpy(&result, &argument.value, sizeof(T));
  return result;
}

template <class T>
const T* pointer_to_value(const LoomKernelArgument& argument) {
  return reinterpret_cast<const T*>(&argument.value);
}

// Loop nests.

/// How many blocks `trips` trips of loops over `elements` elements are cut into, of `grain`
/// elements or more. It depends on shapes only.
inline std::int64_t block_count(std::int64_t trips, std::int64_t elements, std::int64_t grain,
                                std::int64_t most) {
  return std::max<std::int64_t>(1, std::min({elements / grain, trips, most}));
}

/// The trips of block `index` of `count`: [begin, end).
struct Part {
  Part(std::int64_t trips, std::int64_t index, std::int64_t count)
      : begin(trips / count * index + std::min(index, trips % count)),
        end(begin + trips / count + (index < trips % count ? 1 : 0)) {}
  std::int64_t begin, end;
};

inline std::int64_t trip_count(std::int64_t begin, std::int64_t end, std::int64_t step) {
  return end <= begin ? 0 : (end - begin + step - 1) / std::max<std::int64_t>(step, 1);
}

template <class Block>
void run_blocks(const LoomKernelGrid* grid, std::int64_t count, Block&& block) {
  if (count <= 1) {
    block(std::int64_t{0});
    return;
  }
  using Function = std::remove_reference_t<Block>;
  loom_kernel_run_blocks(
      grid, count,
      [](void* context, std::int64_t index) { (*static_cast<Function*>(context))(index); }, &block);
}

}  // namespace loom_kernel
