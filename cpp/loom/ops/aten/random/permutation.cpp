// SPDX-License-Identifier: BSD-3-Clause
// randperm.
#include "loom/kernels/rng/permutation.h"

#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>

namespace loom::ops::random {
namespace {

template <class T>
void permutation_kernel(Grid& grid, const TensorRef& result, const PhiloxStream& stream) {
  const kernels::rng::SteppedVector<Stored<T>> to{result.data(),
                                                  result.strides()[0] * std::int64_t{sizeof(T)}};
  kernels::rng::permute(to, result.numel(), stream,
                        [&](std::int64_t blocks, const auto& body) { grid.run(blocks, body); });
}

}  // namespace

at::Tensor& randperm_out(std::int64_t n, OptionalGenerator generator, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator || result.device() == generator->device(), "Expected a '", result.device(),
              "' generator device but found '", generator->device(), "'");
  // A probe on the host, since the check makes a scalar of that dtype.
  at::native::check_supported_max_int_with_precision(
      n, at::detail::empty_cpu({0}, result.scalar_type()));
  result.resize_({n});
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, result.scalar_type(), "randperm", [&] {
    if (n == 0) return;
    const ReservedWords words =
        reserve(generator, result.device(), kernels::rng::words_of_permutation(n), 1);
    launch("randperm", Custom{}, permutation_kernel<scalar_t>, out(result), words);
  });
  return result;
}

}  // namespace loom::ops::random
