// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Shape inferences of deferred operators (deferred.h) that are written here: where ATen's Meta
// kernel does not exist, is Python, or does not tell what the CPU kernel does. A rule looks at
// metadata only, and answers in well under a microsecond. Thread: any.

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <initializer_list>
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
  /// As at::empty_like makes it.
  [[nodiscard]] static Geometry like(const at::Tensor& tensor);
  /// An undefined tensor.
  [[nodiscard]] static Geometry absent() { return {c10::ScalarType::Undefined, {}}; }
};

/// One geometry a result; nothing for arguments that the kernel may refuse or that the rule does
/// not know, or if what the kernel returns depends on data. Throws, as ATen's own checks do, for
/// what the CPU operator certainly refuses: then nobody else is asked, and it says so itself.
using Inferred = std::optional<std::vector<Geometry>>;
using Arguments = c10::ArrayRef<c10::IValue>;
using InferenceRule = Inferred (*)(Arguments arguments);

/// Who is asked where a rule knows no answer: the CPU operator itself, or ATen's Meta kernel first,
/// where that is right about it.
enum class Otherwise : std::uint8_t { kCpu, kMeta };

struct KnownRule {
  InferenceRule rule = nullptr;  ///< null: there is none
  Otherwise otherwise = Otherwise::kMeta;
};

/// The rule of an operator ("aten::_fft_c2c", "aten::kthvalue.values").
[[nodiscard]] KnownRule inference_rule(const c10::OperatorName& name);

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
[[nodiscard]] inline bool is_floating(c10::ScalarType dtype) {
  return is_real(dtype) || dtype == c10::kHalf || dtype == c10::kBFloat16;
}
[[nodiscard]] inline bool is_complex(c10::ScalarType dtype) {
  return dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}
/// `dim` counted from the front; nothing if a tensor of `dims` dimensions does not have it.
[[nodiscard]] std::optional<std::int64_t> wrapped_dim(std::int64_t dim, std::int64_t dims);

/// Contiguous, with the strides that a new tensor of its sizes has.
[[nodiscard]] bool is_canonical(const at::Tensor& tensor);
/// The result of a TensorIterator over operands of one floating dtype. Nothing where its strides
/// follow from a comparison of theirs.
/// Throws: c10::Error, if they do not broadcast.
[[nodiscard]] std::optional<Geometry> pointwise(std::initializer_list<at::Tensor> operands);

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

Inferred mode(Arguments arguments);
Inferred whole_median(Arguments arguments);
Inferred product(Arguments arguments);
Inferred trace(Arguments arguments);
Inferred std_mean(Arguments arguments);
Inferred histc(Arguments arguments);
Inferred searchsorted(Arguments arguments);
Inferred bucketize(Arguments arguments);

Inferred flip(Arguments arguments);
Inferred take(Arguments arguments);
Inferred unfold_backward(Arguments arguments);
Inferred index(Arguments arguments);
Inferred index_put(Arguments arguments);
Inferred index_fill(Arguments arguments);
Inferred masked_scatter(Arguments arguments);
Inferred arange(Arguments arguments);
Inferred linspace(Arguments arguments);

Inferred pointwise_of_first(Arguments arguments);
Inferred angle(Arguments arguments);
Inferred log_sigmoid(Arguments arguments);
Inferred log_sigmoid_backward(Arguments arguments);
Inferred glu_backward(Arguments arguments);
Inferred prelu(Arguments arguments);
Inferred prelu_backward(Arguments arguments);
Inferred frexp(Arguments arguments);
Inferred conj_physical(Arguments arguments);
Inferred outer_product(Arguments arguments);

Inferred grid_sampler_2d(Arguments arguments);
Inferred grid_sampler_2d_backward(Arguments arguments);
Inferred grid_sampler_3d(Arguments arguments);
Inferred grid_sampler_3d_backward(Arguments arguments);
Inferred im2col(Arguments arguments);
Inferred col2im(Arguments arguments);
Inferred adaptive_avg_pool2d(Arguments arguments);
Inferred adaptive_avg_pool2d_backward(Arguments arguments);
Inferred adaptive_avg_pool3d(Arguments arguments);
Inferred adaptive_avg_pool3d_backward(Arguments arguments);
Inferred max_pool3d(Arguments arguments);
Inferred max_pool3d_backward(Arguments arguments);
Inferred max_unpool2d(Arguments arguments);
Inferred max_unpool3d(Arguments arguments);
Inferred reflection_pad2d(Arguments arguments);
Inferred pad2d_backward(Arguments arguments);
Inferred pad3d_backward(Arguments arguments);

Inferred cdist(Arguments arguments);
Inferred cdist_backward(Arguments arguments);
Inferred addbmm(Arguments arguments);
Inferred cholesky(Arguments arguments);
Inferred cholesky_solve(Arguments arguments);

Inferred huber_loss(Arguments arguments);
Inferred loss_gradient(Arguments arguments);
Inferred binary_cross_entropy(Arguments arguments);
Inferred binary_cross_entropy_backward(Arguments arguments);
Inferred multi_margin_loss(Arguments arguments);
Inferred nll_loss2d(Arguments arguments);
Inferred nll_loss2d_backward(Arguments arguments);
Inferred ctc_loss(Arguments arguments);
Inferred multilabel_margin_loss(Arguments arguments);
Inferred embedding_bag(Arguments arguments);
Inferred embedding_bag_forward_only(Arguments arguments);
Inferred embedding_bag_backward(Arguments arguments);
Inferred embedding_bag_weights_backward(Arguments arguments);

/// Results that are as large as an argument, contiguous, and floating-point like it: gradients.
Inferred like_first(Arguments arguments);
Inferred like_second(Arguments arguments);

}  // namespace inference
}  // namespace loom::ops
