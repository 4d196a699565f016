// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/trial.h"

#include "loom/base/mutex.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/tensor_lists.h"

#include <ATen/EmptyTensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

namespace loom::ops {
namespace {

// Kernels that count rows from one and do not look whether they may.
constexpr std::string_view kCountFromOne[] = {"aten::linalg_lu_solve", "aten::linalg_ldl_solve",
                                              "aten::lu_unpack", "aten::_lu_solve"};

/// While one lives, what ATen warns of once only is not used up by a trial, which nobody hears. The
/// setting is the process's, so the first one changes it and the last one puts it back.
class OnceIsKept {
 public:
  OnceIsKept() {
    MutexLock lock(mutex_);
    if (count_++ == 0) {
      before_ = c10::WarningUtils::get_warnAlways();
      c10::WarningUtils::set_warnAlways(true);
    }
  }
  ~OnceIsKept() {
    MutexLock lock(mutex_);
    if (--count_ == 0) c10::WarningUtils::set_warnAlways(before_);
  }
  OnceIsKept(const OnceIsKept&) = delete;
  OnceIsKept& operator=(const OnceIsKept&) = delete;

 private:
  static inline Mutex mutex_;
  static inline int count_ LOOM_GUARDED_BY(mutex_) = 0;
  static inline bool before_ LOOM_GUARDED_BY(mutex_) = false;
};

/// Arguments of zeros on the host.
class StandIns {
 public:
  explicit StandIns(std::string_view name) {
    for (const std::string_view each : kCountFromOne) ones_ = ones_ || each == name;
  }

  [[nodiscard]] c10::IValue of(const c10::IValue& value) const {
    return map_tensors(value, [this](const at::Tensor& tensor) { return of(tensor); });
  }

 private:
  [[nodiscard]] at::Tensor of(const at::Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    // A number keeps its value, and host memory is not written by a trial.
    if (!tensor.is_privateuseone()) return tensor.is_cpu() ? copy_of(tensor) : tensor;
    at::Tensor made =
        at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    if (const std::size_t bytes = made.storage().nbytes(); bytes > 0) {
      std::memset(made.mutable_data_ptr(), 0, bytes);
    }
    if (ones_ && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) made.fill_(1);
    if (tensor.is_conj()) made._set_conj(true);
    if (tensor.is_neg()) made._set_neg(true);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      made.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    if (tensor.requires_grad()) made.set_requires_grad(true);
    return made;
  }

  [[nodiscard]] static at::Tensor copy_of(const at::Tensor& number) {
    at::Tensor made = number.detach().clone();
    if (number.unsafeGetTensorImpl()->is_wrapped_number()) {
      made.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return made;
  }

  bool ones_ = false;
};

}  // namespace

std::int64_t trial_elements(const at::Tensor& tensor) {
  constexpr std::int64_t kTooMany = std::int64_t{1} << 40;
  if (!tensor.defined()) return 0;
  if (tensor.layout() != c10::kStrided) return kTooMany;  // no trial has stand-ins for it
  std::int64_t extent = 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return 0;
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return std::max(extent, tensor.numel());
}

bool passes_trial(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const StandIns stand_ins(op.operator_name().name);
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  const NoWarnings about_stand_ins;
  const OnceIsKept once_is_kept;
  const at::DisableRecordFunctionGuard no_profile;
  try {
    for (const c10::IValue& argument : arguments) stack.push_back(stand_ins.of(argument));
    call_on_cpu(op, &stack);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

bool detail::passes_trial(const char* name, const char* overload, torch::jit::Stack arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  return ops::passes_trial(op, arguments);
}

}  // namespace loom::ops
