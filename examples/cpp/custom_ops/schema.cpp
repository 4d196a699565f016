// SPDX-License-Identifier: BSD-3-Clause
#include <torch/library.h>

#include "operators.h"

namespace custom_ops {

// The tag promises what torch.library.opcheck verifies: torch.compile may trace the operators.
TORCH_LIBRARY(custom_ops, m) {
  m.def("myadd(Tensor self, Tensor other) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("mymatmul(Tensor self, Tensor other) -> Tensor", {at::Tag::pt2_compliant_tag});
}

const c10::TypedOperatorHandle<Binary>& myadd_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("custom_ops::myadd", "").typed<Binary>();
  return op;
}

const c10::TypedOperatorHandle<Binary>& mymatmul_operator() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("custom_ops::mymatmul", "").typed<Binary>();
  return op;
}

at::Tensor myadd(const at::Tensor& self, const at::Tensor& other) {
  return myadd_operator().call(self, other);
}

at::Tensor mymatmul(const at::Tensor& self, const at::Tensor& other) {
  return mymatmul_operator().call(self, other);
}

}  // namespace custom_ops
