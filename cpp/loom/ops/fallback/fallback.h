// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What runs when an operator has no kernel of its own. Thread: any.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace torch {
class Library;
}

namespace loom::ops {

/// Defers the operator whose arguments are on top of `stack` (deferred.h); if that cannot be done,
/// waits for the streams of its operands, runs it on the host over the same memory, and counts that
/// (fallback_report.h). Leaves the results on the stack.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The same without deferring, for calls that the CPU operator will probably refuse.
void fallback_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// fallback() for a kernel with a signature. Results are the arguments that the operator writes, so
/// `Result` is a reference to them, or several.
template <class Result, class... Argument>
Result call_fallback(const char* name, const char* overload,
                     std::type_identity_t<Argument>... arguments) {
  return c10::impl::BoxedKernelWrapper<Result(Argument...)>::call(
      c10::BoxedKernel::makeFromFunction<&fallback>(),
      c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), c10::DispatchKeySet(),
      std::forward<Argument>(arguments)...);
}

/// Runs `body`, which runs the operator on the host: obeys LOOM_FALLBACK, and counts it.
void as_fallback(const c10::OperatorHandle& op, c10::function_ref<void()> body);

/// The operator on host tensors, seen by none of the layers that it came through on the device.
void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Where ATen has both a kernel for a sparse layout or quantized tensors on CPU and a default for
/// any device, the default is not for such tensors: registers the fallback in place of each kernel
/// that there is for `cpu_key`, except for `but` (full names: "aten::view").
void prefer_cpu_kernels(torch::Library& library, c10::DispatchKey cpu_key,
                        std::span<const std::string_view> but = {});

}  // namespace loom::ops
