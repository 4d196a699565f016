// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of factorisations whose last argument is whether to raise what they find in the data: if
// so, the call waits for its operands and factorises on the caller. Thread: any.

#include "loom/backend/sync_debug.h"
#include "loom/device/failed_memory.h"
#include "loom/ops/aten/policy/matrices.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/launch/host_region.h"

#include <tuple>

namespace loom::ops {

struct Checked {
  template <auto kCpu, std::size_t kOutputs, class... Argument>
  static void launch(const char* name, const std::array<at::Tensor, kOutputs>& outputs,
                     const Argument&... arguments) {
    const bool checks = std::get<sizeof...(Argument) - 1>(std::tie(arguments...));
    if (!checks)
      return launch_cpu<kCpu>(name, Matrices<true>::split(outputs, arguments...), outputs,
                              arguments...);
    Queue& queue = current_queue(outputs[0].device().index());
    queue.check_not_captured(name, "it is to check what is not computed before the replay");
    before_host_wait(name);
    queue.synchronize();
    const HostRegion host;
    std::apply(
        [&](const auto&... output) {
          detail::outputs_first<kOutputs>(kCpu)(TensorRef(output, /*writes=*/true).alias()...,
                                                on_host(arguments)...);
        },
        outputs);
    note_written(outputs);
  }

 private:
  template <class T>
  static const T& on_host(const T& argument) {
    return argument;
  }
  static at::Tensor on_host(const at::Tensor& tensor) {
    const TensorRef ref(tensor);
    ref.check_values();
    return ref.alias();
  }

  template <std::size_t kOutputs>
  static void note_written(const std::array<at::Tensor, kOutputs>& outputs) {
    if (!FailedMemory::any()) return;
    AccessList accesses;
    for (const at::Tensor& output : outputs) {
      TensorRef(output).append_access(accesses, AccessKind::kReplace);
    }
    FailedMemory::clear(accesses);
  }
};

}  // namespace loom::ops
