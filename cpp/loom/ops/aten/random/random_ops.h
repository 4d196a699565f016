// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Random operators of PrivateUse1, with the signatures of native_functions.yaml. Arguments are
// checked as on cpu; the words are taken from the generator on the caller's thread.
// Thread: any; the current stream is the calling thread's.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace loom::ops::random {

using OptionalGenerator = std::optional<at::Generator>;

// continuous.cpp
at::Tensor& uniform_(at::Tensor& self, double from, double to, OptionalGenerator generator);
at::Tensor& normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator);
at::Tensor normal_tensor_float(const at::Tensor& mean, double std, OptionalGenerator generator);
at::Tensor normal_float_tensor(double mean, const at::Tensor& std, OptionalGenerator generator);
at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std,
                                OptionalGenerator generator);
at::Tensor& normal_tensor_float_out(const at::Tensor& mean, double std, OptionalGenerator generator,
                                    at::Tensor& result);
at::Tensor& normal_float_tensor_out(double mean, const at::Tensor& std, OptionalGenerator generator,
                                    at::Tensor& result);
at::Tensor& normal_tensor_tensor_out(const at::Tensor& mean, const at::Tensor& std,
                                     OptionalGenerator generator, at::Tensor& result);
at::Tensor& log_normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator);
at::Tensor& exponential_(at::Tensor& self, double lambda, OptionalGenerator generator);
at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, OptionalGenerator generator);

// discrete.cpp
at::Tensor& geometric_(at::Tensor& self, double p, OptionalGenerator generator);
at::Tensor& random_(at::Tensor& self, OptionalGenerator generator);
at::Tensor& random_from_(at::Tensor& self, std::int64_t from, std::optional<std::int64_t> to,
                         OptionalGenerator generator);
at::Tensor& random_to_(at::Tensor& self, std::int64_t to, OptionalGenerator generator);

// bernoulli.cpp
at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, OptionalGenerator generator);
at::Tensor& bernoulli_float_(at::Tensor& self, double p, OptionalGenerator generator);
at::Tensor& bernoulli_out(const at::Tensor& self, OptionalGenerator generator, at::Tensor& result);

// dropout.cpp
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train);
at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale);

// permutation.cpp
at::Tensor& randperm_out(std::int64_t n, OptionalGenerator generator, at::Tensor& result);

// multinomial.cpp
at::Tensor multinomial(const at::Tensor& self, std::int64_t samples, bool replacement,
                       OptionalGenerator generator);
at::Tensor& multinomial_out(const at::Tensor& self, std::int64_t samples, bool replacement,
                            OptionalGenerator generator, at::Tensor& result);

// rejection.cpp
at::Tensor poisson(const at::Tensor& self, OptionalGenerator generator);
at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob, OptionalGenerator generator);
at::Tensor standard_gamma(const at::Tensor& self, OptionalGenerator generator);
at::Tensor sample_dirichlet(const at::Tensor& self, OptionalGenerator generator);

}  // namespace loom::ops::random
