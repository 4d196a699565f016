// SPDX-License-Identifier: BSD-3-Clause
// torch.autocast("loom"): ATen's own lists of operators, as the CUDA backend has them, with ATen's
// own policies. An operator on none of the lists runs in the dtype that it is given.

#include "loom/backend/registration.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

// ATen's macros name things of this namespace.
namespace at::autocast {
namespace {

#define LOOM_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define LOOM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define LOOM_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define LOOM_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// Its gradient overflows in half precision unless sigmoid is fused into it.
Tensor binary_cross_entropy_banned(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                   std::int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast:"
      " use torch.nn.functional.binary_cross_entropy_with_logits or"
      " torch.nn.BCEWithLogitsLoss on what the sigmoid gets, or switch autocast off around"
      " the loss");
}

LOOM_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

LOOM_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOOM_LOWER_PRECISION)
  AT_FORALL_FP32(LOOM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(LOOM_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(LOOM_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));
}

}  // namespace
}  // namespace at::autocast
