// SPDX-License-Identifier: BSD-3-Clause
// uniform_, normal_, log_normal_, exponential_, cauchy_ and their variants. ATen's templates check
// the arguments, so that they fail as on cpu, and call the kernels below.
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"
#include "loom/ops/meta/structured_meta.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/normal_ops.h>

#include <cmath>
#include <limits>

namespace loom::ops::random {
namespace {

using at::opmath_type;

// The largest T below x, which is finite.
template <class T>
T below(T x) {
  if constexpr (sizeof(T) > 2) {
    return std::nextafter(x, -std::numeric_limits<T>::infinity());
  } else {
    // Half types: a sign and a magnitude that counts up.
    constexpr unsigned kSign = 0x8000;
    const unsigned bits = x.x;
    const unsigned next = (bits & kSign) != 0 ? bits + 1 : bits - 1;
    const bool zero = (bits & ~kSign) == 0;
    return T(static_cast<std::uint16_t>(zero ? kSign + 1 : next), T::from_bits());
  }
}

// [from, to), or `from` alone where T has nothing between them.
template <class T>
Uniform<opmath_type<T>> uniform_of(double from, double to) {
  using Real = opmath_type<T>;
  const T lowest = static_cast<T>(from);
  const T highest = below(static_cast<T>(to));
  return {static_cast<Real>(from), static_cast<Real>(to) - static_cast<Real>(from),
          static_cast<Real>(highest < lowest ? lowest : highest)};
}

template <class>
struct UniformKernel {
  void operator()(const at::TensorIteratorBase& iterator, double from, double to,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, iterator.dtype(), "uniform_kernel_cpu", [&] {
          launch_fill<scalar_t>("uniform_", iterator.tensor(0), generator,
                                uniform_of<scalar_t>(from, to));
        });
  }
};

template <class>
struct NormalKernel {
  void operator()(const at::Tensor& self, double mean, double std,
                  const OptionalGenerator& generator) const {
    at::assert_no_internal_overlap(self);
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, self.scalar_type(), "normal_kernel_cpu", [&] {
          using Real = opmath_type<scalar_t>;
          launch_fill<scalar_t>("normal_", self, generator,
                                Normal<Real>{static_cast<Real>(mean), static_cast<Real>(std)});
        });
  }
};

template <class>
struct LogNormalKernel {
  void operator()(const at::TensorIteratorBase& iterator, double mean, double std,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, iterator.dtype(), "log_normal_cpu", [&] {
          using Real = opmath_type<scalar_t>;
          launch_fill<scalar_t>("log_normal_", iterator.tensor(0), generator,
                                LogNormal<Real>{static_cast<Real>(mean), static_cast<Real>(std)});
        });
  }
};

template <class>
struct ExponentialKernel {
  void operator()(const at::TensorIteratorBase& iterator, double lambda,
                  const OptionalGenerator& generator) const {
    TORCH_CHECK(at::isFloatingType(iterator.dtype()),
                "Exponential distribution is a continuous probability distribution. "
                "dtype must be a floating point but you specified ",
                iterator.dtype());
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, iterator.dtype(), "exponential_cpu", [&] {
          using Real = opmath_type<scalar_t>;
          launch_fill<scalar_t>("exponential_", iterator.tensor(0), generator,
                                Exponential<Real>{static_cast<Real>(1 / lambda)});
        });
  }
};

template <class>
struct CauchyKernel {
  void operator()(const at::TensorIteratorBase& iterator, double median, double sigma,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iterator.dtype(), "cauchy_cpu", [&] {
      using Real = opmath_type<scalar_t>;
      launch_fill<scalar_t>("cauchy_", iterator.tensor(0), generator,
                            Cauchy<Real>{static_cast<Real>(median), static_cast<Real>(sigma)});
    });
  }
};

// The templates want the type of a generator; the kernels do not use it.
using Any = at::Generator;
namespace templates = at::native::templates;

}  // namespace

at::Tensor& uniform_(at::Tensor& self, double from, double to, OptionalGenerator generator) {
  return templates::uniform_impl_<UniformKernel, Any>(self, from, to, std::move(generator));
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  return templates::normal_impl_<NormalKernel, Any>(self, mean, std, std::move(generator));
}

at::Tensor normal_tensor_float(const at::Tensor& mean, double std, OptionalGenerator generator) {
  return templates::normal_impl<NormalKernel, Any>(mean, std, std::move(generator));
}

at::Tensor normal_float_tensor(double mean, const at::Tensor& std, OptionalGenerator generator) {
  return templates::normal_impl<NormalKernel, Any>(mean, std, std::move(generator));
}

at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std,
                                OptionalGenerator generator) {
  return templates::normal_impl<NormalKernel, Any>(mean, std, std::move(generator));
}

at::Tensor& normal_tensor_float_out(const at::Tensor& mean, double std, OptionalGenerator generator,
                                    at::Tensor& result) {
  ops::detail::check_same_device<at::_ops::normal_Tensor_float_out>(mean, std, generator, result);
  return templates::normal_out_impl<NormalKernel, Any>(result, mean, std, std::move(generator));
}

at::Tensor& normal_float_tensor_out(double mean, const at::Tensor& std, OptionalGenerator generator,
                                    at::Tensor& result) {
  ops::detail::check_same_device<at::_ops::normal_float_Tensor_out>(mean, std, generator, result);
  return templates::normal_out_impl<NormalKernel, Any>(result, mean, std, std::move(generator));
}

at::Tensor& normal_tensor_tensor_out(const at::Tensor& mean, const at::Tensor& std,
                                     OptionalGenerator generator, at::Tensor& result) {
  ops::detail::check_same_device<at::_ops::normal_Tensor_Tensor_out>(mean, std, generator, result);
  return templates::normal_out_impl<NormalKernel, Any>(result, mean, std, std::move(generator));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  return templates::log_normal_impl_<LogNormalKernel, Any>(self, mean, std, std::move(generator));
}

at::Tensor& exponential_(at::Tensor& self, double lambda, OptionalGenerator generator) {
  return templates::exponential_impl_<ExponentialKernel, Any>(self, lambda, std::move(generator));
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, OptionalGenerator generator) {
  return templates::cauchy_impl_<CauchyKernel, Any>(self, median, sigma, std::move(generator));
}

}  // namespace loom::ops::random
