// SPDX-License-Identifier: BSD-3-Clause
// Strided nested tensors have no kernels here (jagged ones are made of dense tensors and need
// none).
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

// TransformerEncoder asks this before it turns a padded batch into a nested tensor, which is only a
// shortcut: the answer keeps it on the dense path.
bool from_mask_left_aligned(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(from_mask_left_aligned));
}

}  // namespace loom::ops
