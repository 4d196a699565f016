// SPDX-License-Identifier: BSD-3-Clause
// random_ and geometric_. ATen's templates check the arguments and call the kernels below.
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/native/DistributionTemplates.h>

#include <cmath>
#include <limits>

namespace loom::ops::random {
namespace {

// base + integers in [0, range), with as many words as keep them even.
template <class T>
void launch_integers(const at::Tensor& self, std::uint64_t range, std::int64_t base,
                     const OptionalGenerator& generator) {
  if (range <= std::uint64_t{1} << 16) {
    launch_fill<T>("random_", self, generator, ShortIntegers{range, base});
  } else if (range < std::uint64_t{1} << 32) {
    launch_fill<T>("random_", self, generator, MediumIntegers{range, base});
  } else {
    launch_fill<T>("random_", self, generator, LongIntegers{range, base});
  }
}

// How many integers random_() without bounds draws from, beginning with 0: those that T holds.
template <class T>
constexpr std::uint64_t full_range() {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::uint64_t>(std::numeric_limits<T>::max()) + 1;
  } else {
    constexpr unsigned kDigits = std::numeric_limits<T>::digits;
    return (std::uint64_t{1} << kDigits) + 1;
  }
}

template <class>
struct RandomKernel {
  void operator()(const at::TensorIteratorBase& iterator,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_ALL_TYPES_AND3(
        at::kHalf, at::kBFloat16, at::kBool, iterator.dtype(), "random_kernel_cpu", [&] {
          launch_integers<scalar_t>(iterator.tensor(0), full_range<scalar_t>(), 0, generator);
        });
  }
};

template <class>
struct RandomFromToKernel {
  void operator()(const at::TensorIteratorBase& iterator, std::uint64_t range, std::int64_t base,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_V2(iterator.dtype(), "random_from_to_kernel_cpu", AT_WRAP([&] {
                     launch_integers<scalar_t>(iterator.tensor(0), range, base, generator);
                   }),
                   at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_ALL_TYPES),
                   AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  }

  // All 2^64 integers.
  void operator()(const at::TensorIteratorBase& iterator,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_ALL_TYPES_AND(
        at::kBFloat16, iterator.dtype(), "random_full_64_bits_range_kernel_cpu", [&] {
          if constexpr (sizeof(scalar_t) == 8 || !std::is_integral_v<scalar_t>) {
            launch_fill<scalar_t>("random_", iterator.tensor(0), generator, AllBits{});
          } else {
            TORCH_CHECK(false,
                        "random_full_64_bits_range_kernel_cpu handles only int64, double, float "
                        "and bfloat16");
          }
        });
  }
};

template <class>
struct GeometricKernel {
  void operator()(const at::TensorIteratorBase& iterator, double p,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, iterator.dtype(), "geometric_cpu", [&] {
      launch_fill<scalar_t>("geometric_", iterator.tensor(0), generator,
                            Geometric{1 / std::log1p(-p)});
    });
  }
};

// The templates want the type of a generator; the kernels do not use it.
using Any = at::Generator;
namespace templates = at::native::templates;

}  // namespace

at::Tensor& geometric_(at::Tensor& self, double p, OptionalGenerator generator) {
  return templates::geometric_impl_<GeometricKernel, Any>(self, p, std::move(generator));
}

at::Tensor& random_(at::Tensor& self, OptionalGenerator generator) {
  return templates::random_impl<RandomKernel, Any>(self, std::move(generator));
}

at::Tensor& random_from_(at::Tensor& self, std::int64_t from, std::optional<std::int64_t> to,
                         OptionalGenerator generator) {
  return templates::random_from_to_impl<RandomFromToKernel, Any>(self, from, to,
                                                                 std::move(generator));
}

at::Tensor& random_to_(at::Tensor& self, std::int64_t to, OptionalGenerator generator) {
  return random_from_(self, 0, to, std::move(generator));
}

}  // namespace loom::ops::random
