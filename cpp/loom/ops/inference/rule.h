// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Shape inferences of deferred operators (deferred.h) that are written here: where ATen's Meta
// kernel does not exist, is Python, or does not tell what the CPU kernel does. A rule looks at
// metadata only, and answers in well under a microsecond. Thread: any.

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace loom::ops {

/// What a result looks like.
struct Geometry {
  c10::ScalarType dtype;
  at::DimVector sizes, strides;

  /// Contiguous.
  Geometry(c10::ScalarType dtype, c10::IntArrayRef sizes);
  Geometry(c10::ScalarType dtype, at::DimVector sizes, at::DimVector strides)
      : dtype(dtype), sizes(std::move(sizes)), strides(std::move(strides)) {}
  /// Matrices as LAPACK has them: columns lie together.
  [[nodiscard]] static Geometry column_major(c10::ScalarType dtype, c10::IntArrayRef sizes);
};

/// One geometry a result; nothing for arguments that the kernel may refuse, or if what the kernel
/// returns depends on data: then the CPU operator itself is asked.
using Inferred = std::optional<std::vector<Geometry>>;
using Arguments = c10::ArrayRef<c10::IValue>;
using InferenceRule = Inferred (*)(Arguments arguments);

/// The rule of an operator ("aten::_fft_c2c", "aten::kthvalue.values"), or null.
[[nodiscard]] InferenceRule inference_rule(const c10::OperatorName& name);

[[nodiscard]] inline const at::Tensor& tensor_at(Arguments arguments, std::size_t i) {
  return arguments[i].toTensor();
}
/// Undefined for None.
[[nodiscard]] inline at::Tensor optional_tensor_at(Arguments arguments, std::size_t i) {
  return arguments[i].isTensor() ? arguments[i].toTensor() : at::Tensor();
}
[[nodiscard]] inline bool is_real(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble;
}
[[nodiscard]] inline bool is_complex(c10::ScalarType dtype) {
  return dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}
/// `dim` counted from the front; nothing if a tensor of `dims` dimensions does not have it.
[[nodiscard]] std::optional<std::int64_t> wrapped_dim(std::int64_t dim, std::int64_t dims);

namespace inference {

Inferred fft_c2c(Arguments arguments);
Inferred fft_r2c(Arguments arguments);
Inferred fft_c2r(Arguments arguments);

Inferred eig(Arguments arguments);
Inferred geqrf(Arguments arguments);
Inferred householder_product(Arguments arguments);
Inferred least_squares(Arguments arguments);
Inferred ormqr(Arguments arguments);
Inferred solve_triangular(Arguments arguments);

Inferred kthvalue(Arguments arguments);
Inferred median(Arguments arguments);
Inferred logcumsumexp(Arguments arguments);
Inferred nonzero_static(Arguments arguments);
Inferred histogram_of_count(Arguments arguments);
Inferred histogram_of_edges(Arguments arguments);
Inferred histogram_of_counts(Arguments arguments);
Inferred histogram_of_many_edges(Arguments arguments);

Inferred ctc_loss(Arguments arguments);
Inferred multilabel_margin_loss(Arguments arguments);
Inferred embedding_bag(Arguments arguments);
Inferred embedding_bag_forward_only(Arguments arguments);

/// Results that are as large as an argument, contiguous, and floating-point like it: gradients.
Inferred like_first(Arguments arguments);
Inferred like_second(Arguments arguments);

}  // namespace inference
}  // namespace loom::ops
