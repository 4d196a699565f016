// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The asynchronous path of operators that have no kernel of their own here but do have a shape
// inference: a rule of ours (meta/rule.h) or ATen's Meta kernel (C++, or Python's where there
// is Python) says on the caller what the results look like, they are allocated, and ATen's CPU
// kernel runs on the worker, as one block. Thread: any.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

namespace loom::ops {

struct DeferredPlan;

/// Queues the operator of this plan whose arguments are on top of `stack`, replaces them by its
/// results and returns true; or returns false and leaves everything as it was, if that cannot be
/// done: results whose shape depends on data, random numbers, views, operands that are not strided
/// tensors of one device, or a shape inference that refuses. The caller then takes the synchronous
/// fallback, which raises the CPU operator's own errors. A call that the CPU operator refuses on a
/// trial (trial.h) is given to `run_on_host`, so that what does not depend on values is an error of
/// the call. The first call with a combination of dtypes other than float and double (with indices
/// and masks) that is too large for a trial waits for the kernel. Throws: torch.OutOfMemoryError,
/// and what `run_on_host` throws.
[[nodiscard]] bool try_defer(const DeferredPlan& plan, const c10::OperatorHandle& op,
                             torch::jit::Stack* stack, c10::function_ref<void()> run_on_host);

}  // namespace loom::ops
