// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/compiled_kernel.h"

#include "loom/backend/device_state.h"
#include "loom/device/address.h"
#include "loom/ops/launch/launch.h"

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <span>

struct LoomKernelGrid {
  loom::ops::Grid& grid;
};

namespace loom {
namespace {

void* pointer_of(std::uint64_t value) noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(value));
}

/// The arguments of one launch, as the body sees them.
class KernelArguments {
 public:
  explicit KernelArguments(std::span<const LoomKernelArgument> arguments) {
    for (LoomKernelArgument argument : arguments) {
      if (is_memory(argument)) {
        argument.value = reinterpret_cast<std::uintptr_t>(host_address(pointer_of(argument.value)));
      }
      arguments_.push_back(argument);
    }
  }

  [[nodiscard]] const LoomKernelArgument* data() const noexcept { return arguments_.data(); }

  void accesses(AccessList& list) const {
    for (const LoomKernelArgument& argument : arguments_) {
      if (!is_memory(argument) || argument.bytes == 0) continue;
      list.push_back({device_address(pointer_of(argument.value)),
                      static_cast<std::size_t>(argument.bytes), kind_of(argument)});
    }
  }

 private:
  [[nodiscard]] static bool is_memory(const LoomKernelArgument& argument) noexcept {
    return argument.access != kLoomKernelValue;
  }
  [[nodiscard]] static AccessKind kind_of(const LoomKernelArgument& argument) noexcept {
    switch (argument.access) {
      case kLoomKernelRead:
        return AccessKind::kRead;
      case kLoomKernelReplace:
        return AccessKind::kReplace;
      default:
        return AccessKind::kUpdate;
    }
  }

  // As many as most generated kernels have at most, in place.
  c10::SmallVector<LoomKernelArgument, 8> arguments_;
};

}  // namespace
}  // namespace loom

void loom_kernel_launch(std::int64_t device, const char* name, LoomKernelBody body,
                        const LoomKernelArgument* arguments, std::int64_t count) {
  const c10::Device on(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device));
  loom::ops::launch_on(
      on, name, loom::ops::Custom{},
      [body](loom::ops::Grid& grid, const loom::KernelArguments& stored) {
        const LoomKernelGrid lent{grid};
        body(&lent, stored.data());
      },
      loom::KernelArguments({arguments, static_cast<std::size_t>(count)}));
}

void loom_kernel_run_blocks(const LoomKernelGrid* grid, std::int64_t blocks,
                            void (*block)(void* context, std::int64_t index), void* context) {
  grid->grid.run_by_any(blocks, [&](std::int64_t index) { block(context, index); });
}

void loom_kernel_synchronize(std::int64_t device) {
  loom::synchronize(static_cast<c10::DeviceIndex>(device));
}
