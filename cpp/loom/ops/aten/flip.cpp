// SPDX-License-Identifier: BSD-3-Clause
// flip: a copy whose source is walked backwards. What has no such form is ATen's.
#include "loom/backend/registration.h"
#include "loom/kernels/copy/strided_copy.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/meta/rule.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip_native.h>
#include <torch/library.h>

#include <bitset>

namespace loom::ops {
namespace {

using Flipped = std::bitset<64>;

/// Nothing for dimensions that ATen refuses.
std::optional<Flipped> flipped_dims(const at::Tensor& self, c10::IntArrayRef dims) {
  Flipped flipped;
  for (const std::int64_t given : dims) {
    const auto dim = wrapped_dim(given, self.dim());
    if (!dim || flipped[static_cast<std::size_t>(*dim)]) return std::nullopt;
    flipped.set(static_cast<std::size_t>(*dim));
  }
  return flipped;
}

// Runs on the worker.
void flip_elements(Grid& grid, const TensorRef& result, const TensorRef& self,
                   const Flipped& flipped, c10::IntArrayRef dims) {
  TensorView from = self.view();
  at::DimVector strides(from.strides.begin(), from.strides.end());
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (!flipped[d]) continue;
    from.data += (from.sizes[d] - 1) * strides[d] * static_cast<std::ptrdiff_t>(self.itemsize());
    strides[d] = -strides[d];
  }
  from.strides = strides;
  const auto copy =
      kernels::StridedCopy::between(result.view().elements(), from.elements(),
                                    static_cast<std::size_t>(result.numel()) * result.itemsize());
  if (copy) {
    grid.run_by_any(copy->blocks(), [&](std::int64_t block) { copy->run(block); });
  } else {
    result.alias().copy_(at::native::flip(self.alias(), dims));
  }
}

/// The dtypes that ATen's kernel knows for sure.
bool is_common(c10::ScalarType dtype) {
  return (c10::isIntegralType(dtype, /*includeBool=*/true) &&
          !c10::isBarebonesUnsignedType(dtype)) ||
         dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf ||
         dtype == c10::kBFloat16 || dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

at::Tensor flip(const at::Tensor& self, c10::IntArrayRef dims) {
  const bool plain = self.is_privateuseone() && self.layout() == c10::kStrided &&
                     !self.is_nested() && !self.is_conj() && !self.is_neg() &&
                     !self._is_zerotensor() && is_common(self.scalar_type());
  const auto flipped = plain ? flipped_dims(self, dims) : std::nullopt;
  if (!flipped) [[unlikely]] {
    return call_fallback<at::Tensor, const at::Tensor&, c10::IntArrayRef>("aten::flip", "", self,
                                                                          dims);
  }
  at::Tensor result = at::empty_like(self);
  if (self.numel() > 0) {
    launch("flip", Custom{}, flip_elements, out(result), self, *flipped, dims);
  }
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("flip", TORCH_FN(flip)); }

}  // namespace loom::ops
