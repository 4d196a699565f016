// SPDX-License-Identifier: BSD-3-Clause
// torch.autocast: the product runs in autocast's dtype, the sum in the widest dtype of its
// operands.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "operators.h"

namespace custom_ops {
namespace {

namespace autocast = at::autocast;

template <c10::DeviceType kDevice>
at::Tensor cast_and_call(const c10::TypedOperatorHandle<Binary>& op, c10::ScalarType dtype,
                         const at::Tensor& self, const at::Tensor& other) {
  const c10::impl::ExcludeDispatchKeyGuard below_autocast(
      autocast::get_autocast_dispatch_key_from_device_type(kDevice));
  return op.call(autocast::cached_cast(dtype, self, kDevice),
                 autocast::cached_cast(dtype, other, kDevice));
}

template <c10::DeviceType kDevice>
at::Tensor myadd_autocast(const at::Tensor& self, const at::Tensor& other) {
  const auto widest =
      autocast::promote_type(autocast::get_autocast_dtype(kDevice), kDevice, self, other);
  return cast_and_call<kDevice>(myadd_operator(), widest, self, other);
}

template <c10::DeviceType kDevice>
at::Tensor mymatmul_autocast(const at::Tensor& self, const at::Tensor& other) {
  return cast_and_call<kDevice>(mymatmul_operator(), autocast::get_autocast_dtype(kDevice), self,
                                other);
}

template <c10::DeviceType kDevice>
void register_for(torch::Library& m) {
  m.impl("myadd", TORCH_FN(myadd_autocast<kDevice>));
  m.impl("mymatmul", TORCH_FN(mymatmul_autocast<kDevice>));
}

}  // namespace

TORCH_LIBRARY_IMPL(custom_ops, AutocastPrivateUse1, m) { register_for<c10::kPrivateUse1>(m); }
TORCH_LIBRARY_IMPL(custom_ops, AutocastCPU, m) { register_for<c10::kCPU>(m); }

}  // namespace custom_ops
