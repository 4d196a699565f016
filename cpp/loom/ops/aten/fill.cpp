// SPDX-License-Identifier: BSD-3-Clause
// fill_ and zero_.

#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/fused.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/number_check.h"

#include <ATen/ops/fill_native.h>
#include <torch/library.h>

#include <cstring>

namespace loom::ops {
namespace {

// Blocks of memory that one core writes: big enough for memset to be at its best.
constexpr std::size_t kBlock = std::size_t{1} << 20;

void zero_kernel(Grid& grid, const TensorRef& self) {
  if (!self.is_dense()) {
    at::Tensor alias = self.alias();
    at::native::fill_(alias, 0);
    return;
  }
  const std::size_t bytes = static_cast<std::size_t>(self.numel()) * self.itemsize();
  grid.run_by_any(static_cast<std::int64_t>(ceil_div(bytes, kBlock)), [&](std::int64_t block) {
    const std::size_t begin = static_cast<std::size_t>(block) * kBlock;
    std::memset(self.data() + begin, 0, std::min(kBlock, bytes - begin));
  });
}

at::Tensor& zero_(at::Tensor& self) {
  if (self.numel() > 0 && !record_fill("zero_", self, 0))
    launch("zero_", Custom{}, zero_kernel, out(self));
  return self;
}

at::Tensor& fill_scalar(at::Tensor& self, const c10::Scalar& value) {
  // A single element of a narrow type takes the nearest number that it has, infinity too.
  const bool rounds = self.numel() == 1 && c10::isReducedFloatingType(self.scalar_type());
  if (!rounds || value.isComplex()) check_filling(self.scalar_type(), value);
  if (self.numel() > 0 && !record_fill("fill_", self, value)) {
    launch(
        "fill_", Pointwise{},
        [](at::Tensor to, const c10::Scalar& with) { at::native::fill_(to, with); }, out(self),
        value);
  }
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  check_filling(self.scalar_type(), 0);
  if (self.device() != value.device() && !value.is_cpu()) return fill_scalar(self, value.item());
  if (self.numel() > 0) {
    launch(
        "fill_", Pointwise{},
        [](at::Tensor to, const at::Tensor& with) { at::native::fill_(to, with); }, out(self),
        value);
  }
  return self;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("zero_", zero_);
  library.impl("fill_.Scalar", fill_scalar);
  library.impl("fill_.Tensor", fill_tensor);
}

}  // namespace loom::ops
