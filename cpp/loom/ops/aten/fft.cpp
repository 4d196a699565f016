// SPDX-License-Identifier: BSD-3-Clause
// Fourier transforms in two steps, each of which is cut along what it does not transform. ATen's
// kernel of a transform to real numbers takes these steps itself; the others leave planes to MKL,
// which has the threads of one caller.
#include "loom/backend/registration.h"
#include "loom/ops/cuts/deferred_cuts.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/meta/rule.h"

#include <ATen/ops/_fft_c2c.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

namespace loom::ops {
namespace {

// Transforms of fewer elements are one block in any case.
constexpr std::int64_t kManyElements = 65536;

/// Whether this is one plane, which has nothing to be cut along. A volume in two steps takes longer
/// than one transform on one core: its strided step is a copy to and fro.
bool wants_steps(const at::Tensor& self, const at::DimVector& dims) {
  if (dims.size() != 2 || self.numel() < kManyElements) return false;
  return self.size(dims[0]) * self.size(dims[1]) == self.numel();
}

at::DimVector wrapped(c10::IntArrayRef dims, std::int64_t all) {
  at::DimVector found(dims);
  for (std::int64_t& dim : found) dim += dim < 0 ? all : 0;
  return found;
}

at::Tensor empty_as(const Geometry& geometry, const at::Tensor& self) {
  return empty_strided(geometry.sizes, geometry.strides, geometry.dtype, self.device());
}

at::Tensor whole_c2c(const at::Tensor& self, c10::IntArrayRef dim, std::int64_t normalization,
                     bool forward) {
  return call_fallback<at::Tensor, const at::Tensor&, c10::IntArrayRef, std::int64_t, bool>(
      "aten::_fft_c2c", "", self, dim, normalization, forward);
}

at::Tensor fft_c2c(const at::Tensor& self, c10::IntArrayRef dim, std::int64_t normalization,
                   bool forward) {
  at::DimVector dims = wrapped(dim, self.dim());
  if (!wants_steps(self, dims)) return whole_c2c(self, dim, normalization, forward);
  const std::array<c10::IValue, 4> arguments{self, dim, normalization, forward};
  const Inferred inferred = inference::fft_c2c(arguments);
  // The first step is cut along one that lies outside of the others.
  const auto apart = std::ranges::max_element(dims, {}, [&](std::int64_t d) {
    return std::pair(self.size(d) >= kEnoughItems, self.stride(d));
  });
  if (!inferred || self.size(*apart) < kEnoughItems) {
    return whole_c2c(self, dim, normalization, forward);
  }
  const std::int64_t last[] = {*apart};
  dims.erase(apart);
  const at::Tensor half = whole_c2c(self, dims, normalization, forward);
  at::Tensor result = empty_as(inferred->front(), self);
  return at::_fft_c2c_out(result, half, last, normalization, forward);
}

at::Tensor fft_r2c(const at::Tensor& self, c10::IntArrayRef dim, std::int64_t normalization,
                   bool onesided) {
  const auto whole = [&](c10::IntArrayRef of) {
    return call_fallback<at::Tensor, const at::Tensor&, c10::IntArrayRef, std::int64_t, bool>(
        "aten::_fft_r2c", "", self, of, normalization, onesided);
  };
  const at::DimVector dims = wrapped(dim, self.dim());
  if (!wants_steps(self, dims)) return whole(dim);
  const std::array<c10::IValue, 4> arguments{self, dim, normalization, onesided};
  const Inferred inferred = inference::fft_r2c(arguments);
  if (!inferred) return whole(dim);
  const at::Tensor half = whole(c10::IntArrayRef(dims).slice(dims.size() - 1));
  at::Tensor result = empty_as(inferred->front(), self);
  return at::_fft_c2c_out(result, half, c10::IntArrayRef(dims).slice(0, dims.size() - 1),
                          normalization, /*forward=*/true);
}

at::Tensor fft_c2r(const at::Tensor& self, c10::IntArrayRef dim, std::int64_t normalization,
                   std::int64_t last_dim_size) {
  at::Tensor input = self;
  // Half is widened by whoever computes a whole operator.
  if (dim.size() > 1 && is_complex(self.scalar_type())) {
    const std::size_t others = dim.size() - 1;
    input = at::_fft_c2c(self, dim.slice(0, others), normalization, /*forward=*/false);
    dim = dim.slice(others);
  }
  return call_fallback<at::Tensor, const at::Tensor&, c10::IntArrayRef, std::int64_t, std::int64_t>(
      "aten::_fft_c2r", "", input, dim, normalization, last_dim_size);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_fft_c2c", TORCH_FN(fft_c2c));
  library.impl("_fft_r2c", TORCH_FN(fft_r2c));
  library.impl("_fft_c2r", TORCH_FN(fft_c2r));
}

}  // namespace loom::ops
