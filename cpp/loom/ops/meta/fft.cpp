// SPDX-License-Identifier: BSD-3-Clause
// Fourier transforms. With MKL a result lies in memory as the transform made it: the other
// dimensions in the order of the input's strides, then the transformed ones.
#include "loom/ops/meta/rule.h"

#include <ATen/Context.h>

#include <algorithm>
#include <bitset>
#include <numeric>

namespace loom::ops::inference {
namespace {

constexpr int kMaxDims = 64;  // as for TensorIterator
using Dims = std::bitset<kMaxDims>;

/// The layout of one transform, as ATen's orders dimensions for MKL. Sorts as ATen does, so that
/// ties come out alike.
at::DimVector transform_strides(c10::IntArrayRef input_strides, c10::IntArrayRef output_sizes,
                                c10::IntArrayRef dims) {
  Dims transformed;
  for (const std::int64_t d : dims) transformed.set(static_cast<std::size_t>(d));
  std::vector<std::int64_t> order(output_sizes.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto batch_end = std::partition(order.begin(), order.end(), [&](std::int64_t d) {
    return !transformed[static_cast<std::size_t>(d)];
  });
  std::sort(order.begin(), batch_end,
            [&](std::int64_t a, std::int64_t b) { return input_strides[a] > input_strides[b]; });
  std::copy(dims.begin(), dims.end(), batch_end);
  at::DimVector strides(output_sizes.begin(), output_sizes.end());
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= output_sizes[order[i]];
  }
  return strides;
}

at::DimVector by_stride(c10::IntArrayRef dims, c10::IntArrayRef strides, bool keep_last) {
  at::DimVector sorted(dims.begin(), dims.end());
  std::sort(sorted.begin(), sorted.end() - static_cast<std::ptrdiff_t>(keep_last),
            [&](std::int64_t a, std::int64_t b) { return strides[a] > strides[b]; });
  return sorted;
}

/// The dimensions, counted from the front; nothing for what a transform may refuse.
std::optional<at::DimVector> transform_dims(const at::Tensor& self, const c10::IValue& given) {
  at::DimVector dims;
  Dims seen;
  if (self.dim() > kMaxDims) return std::nullopt;
  for (const std::int64_t dim : given.toDimVector()) {
    const auto wrapped = wrapped_dim(dim, self.dim());
    if (!wrapped || self.dim() == 0 || seen[static_cast<std::size_t>(*wrapped)]) {
      return std::nullopt;
    }
    seen.set(static_cast<std::size_t>(*wrapped));
    dims.push_back(*wrapped);
  }
  if (dims.empty() || self.numel() == 0) return std::nullopt;
  return dims;
}

Geometry transformed(c10::ScalarType dtype, c10::IntArrayRef input_strides, at::DimVector sizes,
                     c10::IntArrayRef dims) {
  if (!at::hasMKL()) return {dtype, sizes};
  at::DimVector strides = transform_strides(input_strides, sizes, dims);
  return {dtype, std::move(sizes), std::move(strides)};
}

}  // namespace

// (self, dim, normalization, forward)
Inferred fft_c2c(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dims = transform_dims(self, arguments[1]);
  if (!is_complex(self.scalar_type()) || !dims) return std::nullopt;
  return {{transformed(self.scalar_type(), self.strides(), at::DimVector(self.sizes()),
                       by_stride(*dims, self.strides(), /*keep_last=*/false))}};
}

// (self, dim, normalization, onesided)
Inferred fft_r2c(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dims = transform_dims(self, arguments[1]);
  if (!is_real(self.scalar_type()) || !dims) return std::nullopt;
  at::DimVector sizes(self.sizes());
  if (arguments[3].toBool()) sizes[dims->back()] = sizes[dims->back()] / 2 + 1;
  return {{transformed(c10::toComplexType(self.scalar_type()), self.strides(), std::move(sizes),
                       by_stride(*dims, self.strides(), /*keep_last=*/true))}};
}

// (self, dim, normalization, last_dim_size)
Inferred fft_c2r(Arguments arguments) {
  const at::Tensor& self = tensor_at(arguments, 0);
  const auto dims = transform_dims(self, arguments[1]);
  const std::int64_t last = arguments[3].toInt();
  if (!is_complex(self.scalar_type()) || !dims || last < 1) return std::nullopt;
  if (self.size(dims->back()) != last / 2 + 1) return std::nullopt;
  // All dimensions but the last one in a transform of their own.
  at::DimVector strides(self.strides());
  const c10::IntArrayRef others = c10::IntArrayRef(*dims).slice(0, dims->size() - 1);
  if (!others.empty()) {
    strides =
        transform_strides(strides, self.sizes(), by_stride(others, strides, /*keep_last=*/false));
  }
  at::DimVector sizes(self.sizes());
  sizes[dims->back()] = last;
  return {{transformed(c10::toRealValueType(self.scalar_type()), strides, std::move(sizes),
                       c10::IntArrayRef(*dims).slice(dims->size() - 1))}};
}

}  // namespace loom::ops::inference
