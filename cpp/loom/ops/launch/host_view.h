// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One memory as a tensor of the host and as one of the device, without a copy, which unified memory
// allows. Thread: any; neither may be called on a loom worker.

#include "loom/base/export.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace loom::ops {

/// True if the host may use the addresses that loom tensors show (LOOM_MEMORY=unified).
/// Throws: loom::Error for a bad LOOM_* variable.
[[nodiscard]] LOOM_API bool memory_is_unified();

/// A CPU tensor over the memory of a strided loom tensor, which it keeps alive. Waits for the
/// current stream of the tensor's device; what is queued later is not waited for.
/// Throws: ValueError in isolated memory; what the queued kernels threw.
[[nodiscard]] LOOM_API at::Tensor view_on_host(const at::Tensor& tensor);

/// A loom tensor over the memory of a strided CPU tensor, which it keeps alive. Commands own no
/// memory, so the storage of the view, when it dies, waits for all queues of its device before it
/// lets go of the host's. Throws: ValueError in isolated memory; c10::Error for a bad device.
[[nodiscard]] LOOM_API at::Tensor view_on_device(const at::Tensor& host, c10::Device device);

}  // namespace loom::ops
