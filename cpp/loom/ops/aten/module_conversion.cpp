// SPDX-License-Identifier: BSD-3-Clause
// Module.to("loom") keeps parameters what they are. PyTorch assigns the moved data to the existing
// parameter (`param.data = moved`) only if it finds the two kinds of tensor compatible for a
// shallow copy, and TensorImpl's own list of such backends leaves PrivateUse1 out. loom tensors are
// plain strided TensorImpls, so the answer is the one that CUDA gets: tied weights stay tied,
// parameters keep their identity, and optimisers made before the move still hold them.

#include "loom/backend/registration.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

bool is_plain_dense(const at::Tensor& tensor) {
  using c10::DispatchKey;
  const c10::DispatchKeySet keys = tensor.key_set();
  // One by one: a set of them would hold any backend with any kind of tensor.
  const bool dense = keys.has(DispatchKey::CPU) || keys.has(DispatchKey::CUDA) ||
                     keys.has(DispatchKey::PrivateUse1);
  return tensor.layout() == c10::kStrided && dense && !keys.has(DispatchKey::Python);
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  if (is_plain_dense(self) && is_plain_dense(from)) return true;
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}
LOOM_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace loom::ops
