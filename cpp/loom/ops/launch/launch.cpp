// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/launch.h"

#include <ATen/core/op_registration/adaption.h>

namespace loom::ops {

void check_operand_device(const char* name, c10::Device device, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == device) return;
  if (tensor.device().is_cpu() && tensor.dim() == 0) return;
  c10::impl::common_device_check_failure(device, tensor, name, "an operand");
}

}  // namespace loom::ops
