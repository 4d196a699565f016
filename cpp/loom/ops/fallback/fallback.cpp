// SPDX-License-Identifier: BSD-3-Clause
// The one generic fallback: what has no kernel of its own and cannot be deferred either waits for
// the streams of its operands, runs ATen's CPU operator on this thread over the same memory, and
// turns the results into device tensors. Nothing is copied in either direction. Each use is counted
// (fallback_report.h).
//
// What an operator does to its CPU aliases is carried over to the device tensors, whether its
// schema declares it or not: writes, because the memory is shared; resizes and replaced storages,
// because they are compared afterwards.

#include "loom/ops/fallback/fallback.h"

#include "loom/backend/device_state.h"
#include "loom/backend/registration.h"
#include "loom/backend/stream.h"
#include "loom/backend/sync_debug.h"
#include "loom/base/options.h"
#include "loom/device/queue.h"
#include "loom/ops/fallback/cpu_arguments.h"
#include "loom/ops/fallback/deferred.h"
#include "loom/ops/fallback/deferred_plan.h"
#include "loom/ops/fallback/fallback_report.h"
#include "loom/ops/launch/device_output_scope.h"
#include "loom/ops/launch/host_region.h"
#include "loom/ops/launch/tensor_lists.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>

namespace loom::ops {
namespace {

std::string full_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void obey_fallback_option(const std::string& name) {
  switch (options().fallback) {
    case FallbackMode::kAllow:
      return;
    case FallbackMode::kWarn:
      TORCH_WARN("loom: ", name,
                 " has no asynchronous kernel: it waits for the stream and runs on "
                 "the host (LOOM_FALLBACK=warn)");
      return;
    case FallbackMode::kError:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "loom: ", name,
                                  " has no asynchronous kernel, and "
                                  "LOOM_FALLBACK=error forbids the synchronous fallback");
  }
}

constexpr const char* kWhyNotCaptured =
    "it has no asynchronous kernel and runs on the host, which has to look at its operands; move "
    "it "
    "out of the capture";

}  // namespace

void as_fallback(const c10::OperatorHandle& op, c10::function_ref<void()> body) {
  const auto start = std::chrono::steady_clock::now();
  const std::string name = full_name(op);
  obey_fallback_option(name);
  body();
  note_fallback(name, std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count());
}

void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  HostRegion host;
  op.callBoxed(stack);
}

namespace {

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  CpuArguments arguments(op, *stack);
  for (const c10::DeviceIndex device : arguments.devices()) {
    const Queue& queue = current_queue(device);
    if (queue.captured()) queue.check_not_captured(full_name(op), kWhyNotCaptured);
  }
  arguments.convert(*stack);
  if (sync_debug_mode() != SyncDebugMode::kDefault) before_host_wait(full_name(op).c_str());
  for (const c10::DeviceIndex device : arguments.devices()) current_queue(device).synchronize();
  arguments.check_values();
  DeviceOutputScope outputs(current_queue(arguments.output_device().index()));
  call_on_cpu(op, stack);
  arguments.write_back();
  arguments.note_replaced();
  arguments.convert_results(*stack);
}

}  // namespace

namespace {

bool try_widen_below_autograd(const Widening& widening, const c10::OperatorHandle& op,
                              torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return try_widen(widening, op, stack);
}

/// Copies operands whose elements share memory or lie apart.
void make_dense(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack.size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    const auto* alias = arguments[i].alias_info();
    if (!value.isTensor() || (alias != nullptr && alias->isWrite())) continue;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.layout() == c10::kStrided &&
        !tensor.is_non_overlapping_and_dense()) {
      value = tensor.contiguous();
    }
  }
}

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  settle_tensor_lists(op, *stack);
  const DeferredPlan& plan = deferred_plan(op);
  if (plan.misreads) make_dense(op, *stack);
  if (plan.widening && try_widen_below_autograd(*plan.widening, op, stack)) return;
  const auto decide = [&] { as_fallback(op, [&] { run_on_host(op, stack); }); };
  if (!try_defer(plan, op, stack, decide)) decide();
}

void fallback_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  settle_tensor_lists(op, *stack);
  as_fallback(op, [&] { run_on_host(op, stack); });
}

void prefer_cpu_kernels(torch::Library& library, c10::DispatchKey cpu_key,
                        std::span<const std::string_view> but) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(cpu_key) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      continue;
    }
    const std::string full = full_name(*op);
    if (std::ranges::find(but, full) != but.end()) continue;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

LOOM_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  // Their defaults for any device refuse those that they do not know by name, or do without the CPU
  // operator's checks.
  for (const char* name :
       {"addr", "addr_", "addr.out", "conj_physical_", "conj_physical.out", "fractional_max_pool2d",
        "fractional_max_pool2d.output", "fractional_max_pool3d", "fractional_max_pool3d.output",
        "mode.values"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace loom::ops
