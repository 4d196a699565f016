// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/type_name.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace loom::ops {

std::string type_name(const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  const std::string of =
      device == c10::kCPU ? "" : c10::DeviceTypeName(device, /*lower_case=*/true) + ".";
  return "torch." + of + c10::toString(tensor.scalar_type()) + "Tensor";
}

}  // namespace loom::ops
