// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/registration.h"
#include "loom/ops/aten/random/random_ops.h"

#include <torch/library.h>

namespace loom::ops::random {

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("uniform_", uniform_);
  library.impl("normal_", normal_);
  library.impl("normal.Tensor_float", normal_tensor_float);
  library.impl("normal.float_Tensor", normal_float_tensor);
  library.impl("normal.Tensor_Tensor", normal_tensor_tensor);
  library.impl("normal.Tensor_float_out", normal_tensor_float_out);
  library.impl("normal.float_Tensor_out", normal_float_tensor_out);
  library.impl("normal.Tensor_Tensor_out", normal_tensor_tensor_out);
  library.impl("log_normal_", log_normal_);
  library.impl("exponential_", exponential_);
  library.impl("cauchy_", cauchy_);
  library.impl("geometric_", geometric_);
  library.impl("random_", random_);
  library.impl("random_.from", random_from_);
  library.impl("random_.to", random_to_);
  library.impl("bernoulli_.Tensor", bernoulli_tensor_);
  library.impl("bernoulli_.float", bernoulli_float_);
  library.impl("bernoulli.out", bernoulli_out);
  library.impl("native_dropout", native_dropout);
  library.impl("native_dropout_backward", native_dropout_backward);
  library.impl("randperm.generator_out", randperm_out);
  library.impl("multinomial", multinomial);
  library.impl("multinomial.out", multinomial_out);
  library.impl("poisson", poisson);
  library.impl("binomial", binomial);
  library.impl("_standard_gamma", standard_gamma);
  library.impl("_sample_dirichlet", sample_dirichlet);
}

}  // namespace loom::ops::random
