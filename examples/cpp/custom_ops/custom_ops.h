// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The operator library custom_ops: how loom is given operators of your own. Two small operators,
// each with everything that PyTorch asks of one, a file for a dispatch key:
//
//   schema.cpp    what the operators are, once
//   cpu.cpp       CPU              the kernels, and the loops that both devices run
//   device.cpp    PrivateUse1      the same loops, launched on the current stream
//   meta.cpp      Meta             result shapes: torch.compile, torch.export, fake tensors
//   autograd.cpp  Autograd         gradients made of the operators themselves, so of any order
//   autocast.cpp  Autocast*        mymatmul in lower precision, myadd in the widest type given
//   batching.cpp  FuncTorchBatched vmap by one call of the operator, not by a loop
//   tracer.cpp    Tracer           one node in the graph of torch.jit.trace
//
// In Python they are torch.ops.custom_ops.myadd and torch.ops.custom_ops.mymatmul. Thread: any; on
// loom both return before the work is done, as other operators do.

#include <ATen/core/Tensor.h>

namespace custom_ops {

/// self + other, broadcast, in the dtype that torch.result_type gives; the result is contiguous.
/// Throws: c10::Error when the shapes do not broadcast or the devices differ (a CPU scalar goes
/// with every device).
at::Tensor myadd(const at::Tensor& self, const at::Tensor& other);

/// The matrix product of (n, k) and (k, m), or of (b, n, k) and (b, k, m), both of one floating or
/// complex dtype; the result is contiguous. Throws: c10::Error for other shapes, dtypes, devices.
at::Tensor mymatmul(const at::Tensor& self, const at::Tensor& other);

}  // namespace custom_ops
