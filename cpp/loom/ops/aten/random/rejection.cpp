// SPDX-License-Identifier: BSD-3-Clause
// Distributions whose every element has parameters of its own and rejects samples: poisson,
// binomial, gamma, dirichlet.
#include "loom/base/ceil_div.h"
#include "loom/kernels/rng/element_words.h"
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"
#include "loom/ops/launch/split.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Distributions.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace loom::ops::random {
namespace {

using kernels::rng::ElementWords;

// Hoermann, "The transformed rejection method for generating Poisson random variables" (1993),
// algorithm PTRS with its constants. Requires: rate >= 10.
double sample_large_poisson(double rate, ElementWords& words) {
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double log_inverse_alpha = std::log(1.1239 + 1.1328 / (b - 3.4));
  const double accepted = 0.9277 - 3.6224 / (b - 2);
  const double log_rate = std::log(rate);
  for (;;) {
    const double u = words.uniform() - 0.5;
    const double v = words.uniform();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= accepted) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + log_inverse_alpha - std::log(a / (us * us) + b) <=
        k * log_rate - rate - std::lgamma(k + 1)) {
      return k;
    }
  }
}

// Counts the arrivals within a unit of time. Requires: 0 <= rate < 10.
double sample_small_poisson(double rate, ElementWords& words) {
  const double end = std::exp(-rate);
  double count = 0;
  for (double product = words.uniform(); product > end; product *= words.uniform()) ++count;
  return count;
}

struct Poisson {
  static double sample(double rate, ElementWords& words) {
    TORCH_CHECK(rate >= 0, "invalid Poisson rate, expected rate to be non-negative");
    if (std::isinf(rate)) return rate;
    return rate < 10 ? sample_small_poisson(rate, words) : sample_large_poisson(rate, words);
  }
};

struct Binomial {
  // ATen's sampler does not end where one of the two is NaN.
  static double sample(double count, double probability, ElementWords& words) {
    if (std::isnan(count) || std::isnan(probability)) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    const auto uniform = [&] { return words.uniform(); };
    BaseSampler<double, decltype(uniform)> uniforms(uniform);
    return sample_binomial<double, double, decltype(uniform)>(count, probability, uniforms);
  }
};

struct Gamma {
  static double sample(double alpha, ElementWords& words) {
    const auto uniform = [&] { return words.uniform(); };
    const auto normal = [&] { return words.normal(); };
    BaseSampler<double, decltype(uniform)> uniforms(uniform);
    BaseSampler<double, decltype(normal)> normals(normal);
    return sample_gamma<double, double, decltype(uniform), decltype(normal)>(alpha, uniforms,
                                                                             normals);
  }
};

/// The result as a T. Gamma variables are never 0, as those who take their logarithm expect.
template <class Distribution, class T>
T round_to(double value) {
  const auto rounded = static_cast<T>(value);
  if constexpr (std::is_same_v<Distribution, Gamma>) {
    return std::max(std::numeric_limits<T>::min(), rounded);
  }
  return rounded;
}

/// Writes result[i] = sample(parameters[i] ..., the words of element i).
template <class Distribution, class T, class P, class... Parameter>
void sample_elements(Grid& grid, const TensorRef& result, const PhiloxStream& stream,
                     const Parameter&... parameters) {
  constexpr double kCost = 300;  // in additions: about 100 ns an element
  constexpr std::size_t kParameters = sizeof...(Parameter);
  const StridedRuns<1 + static_cast<int>(kParameters)> runs({&result, &parameters...});
  const std::int64_t length = block_length(result.numel(), kCost);
  grid.run(ceil_div(result.numel(), length), [&](std::int64_t block) {
    const std::int64_t begin = block * length;
    const std::int64_t count = std::min(length, result.numel() - begin);
    runs.visit(begin, count, [&](auto pointers, std::int64_t done, std::int64_t run) {
      for (std::int64_t i = 0; i < run; ++i) {
        ElementWords words(stream, begin + done + i);
        const double value = [&]<std::size_t... k>(std::index_sequence<k...>) {
          return Distribution::sample(
              static_cast<double>(*reinterpret_cast<const P*>(pointers[1 + k]))..., words);
        }(std::make_index_sequence<kParameters>());
        *reinterpret_cast<T*>(pointers[0]) = round_to<Distribution, T>(value);
        for (std::size_t k = 0; k <= kParameters; ++k) pointers[k] += runs.steps()[k];
      }
    });
  });
}

/// What a kernel is lent for an operand.
template <class>
using Lent = TensorRef;

template <class Distribution, class T, class P, class... Parameter>
void launch_samples(const char* name, const at::Tensor& result, const OptionalGenerator& generator,
                    const Parameter&... parameters) {
  if (result.numel() == 0) return;
  const ReservedWords words = reserve(generator, result.device(), 1, ElementWords::kReservedWords);
  launch(name, Custom{}, sample_elements<Distribution, T, P, Lent<Parameter>...>, out(result),
         words, parameters...);
}

at::Tensor empty_like_parameters(const at::Tensor& parameters) {
  return at::empty(parameters.sizes(), parameters.options());
}

}  // namespace

at::Tensor poisson(const at::Tensor& self, OptionalGenerator generator) {
  check_generator_suits(generator, self.device());
  at::Tensor result = empty_like_parameters(self);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "poisson_cpu", [&] {
    launch_samples<Poisson, scalar_t, scalar_t>("poisson", result, generator, self);
  });
  return result;
}

at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob, OptionalGenerator generator) {
  check_generator_suits(generator, count.device());
  TORCH_CHECK_VALUE(
      at::isFloatingType(count.scalar_type()),
      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(
      at::isFloatingType(prob.scalar_type()),
      "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
  at::Tensor result = empty_like_parameters(count);
  // For its broadcasting and its refusals.
  const at::TensorIterator iter = at::TensorIteratorConfig()
                                      .add_output(result)
                                      .add_const_input(count)
                                      .add_const_input(prob)
                                      .build();
  AT_DISPATCH_FLOATING_TYPES(result.scalar_type(), "binomial_cpu", [&] {
    const at::Tensor counts = count.to(result.device()).expand(result.sizes());
    const at::Tensor probabilities = prob.to(result.device()).expand(result.sizes());
    launch_samples<Binomial, scalar_t, scalar_t>("binomial", result, generator, counts,
                                                 probabilities);
  });
  return result;
}

at::Tensor standard_gamma(const at::Tensor& self, OptionalGenerator generator) {
  check_generator_suits(generator, self.device());
  at::Tensor result = empty_like_parameters(self);
  AT_DISPATCH_FLOATING_TYPES(self.scalar_type(), "gamma_cpu", [&] {
    launch_samples<Gamma, scalar_t, scalar_t>("_standard_gamma", result, generator, self);
  });
  return result;
}

// Gamma variables over their sums, in double, since those of small concentrations underflow.
at::Tensor sample_dirichlet(const at::Tensor& self, OptionalGenerator generator) {
  check_generator_suits(generator, self.device());
  at::Tensor result;
  AT_DISPATCH_FLOATING_TYPES(self.scalar_type(), "dirichlet", [&] {
    const at::Tensor gamma = at::empty(self.sizes(), self.options().dtype(at::kDouble));
    launch_samples<Gamma, double, scalar_t>("_sample_dirichlet", gamma, generator, self);
    const at::Tensor shares =
        at::div(gamma, gamma.sum(-1, /*keepdim=*/true)).to(self.scalar_type());
    const auto bound = [&](scalar_t value) {
      return at::scalar_tensor(value, at::TensorOptions(self.scalar_type()));
    };
    const at::Tensor least = at::fmax(shares, bound(std::numeric_limits<scalar_t>::min()));
    result = at::fmin(least, bound(std::nexttoward(scalar_t{1}, 0.0L)));
  });
  return result;
}

}  // namespace loom::ops::random
