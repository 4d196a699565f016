// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/meta/rule.h"

#include <ATen/ExpandUtils.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace loom::ops {
namespace {

struct Entry {
  std::string_view name, overload;
  InferenceRule rule;
  Otherwise otherwise = Otherwise::kCpu;
};

constexpr auto kMeta = Otherwise::kMeta;

constexpr std::array kRules = {
    Entry{"aten::_fft_c2c", "", inference::fft_c2c},
    Entry{"aten::_fft_r2c", "", inference::fft_r2c},
    Entry{"aten::_fft_c2r", "", inference::fft_c2r},
    Entry{"aten::linalg_eig", "", inference::eig},
    Entry{"aten::geqrf", "", inference::geqrf},
    Entry{"aten::linalg_householder_product", "", inference::householder_product},
    Entry{"aten::linalg_lstsq", "out", inference::least_squares},
    Entry{"aten::ormqr", "", inference::ormqr},
    Entry{"aten::linalg_solve_triangular", "", inference::solve_triangular},
    Entry{"aten::kthvalue", "values", inference::kthvalue},
    Entry{"aten::median", "dim_values", inference::median},
    Entry{"aten::nanmedian", "dim_values", inference::median},
    Entry{"aten::_logcumsumexp", "", inference::logcumsumexp},
    Entry{"aten::nonzero_static", "", inference::nonzero_static},
    Entry{"aten::histogram", "bin_ct", inference::histogram_of_count},
    Entry{"aten::histogram", "bins_tensor", inference::histogram_of_edges},
    Entry{"aten::_histogramdd_from_bin_cts", "", inference::histogram_of_counts},
    Entry{"aten::_histogramdd_from_bin_tensors", "", inference::histogram_of_many_edges},
    Entry{"aten::_ctc_loss", "", inference::ctc_loss},
    Entry{"aten::multilabel_margin_loss_forward", "", inference::multilabel_margin_loss},
    Entry{"aten::_ctc_loss_backward", "", inference::like_second},
    Entry{"aten::multilabel_margin_loss_backward", "", inference::like_second},
    Entry{"aten::multi_margin_loss_backward", "", inference::like_second},
    Entry{"aten::fractional_max_pool3d_backward", "", inference::like_second},
    Entry{"aten::_dirichlet_grad", "", inference::like_first},
    Entry{"aten::_standard_gamma_grad", "", inference::like_first},
    Entry{"aten::_masked_softmax", "", inference::like_first},
    Entry{"aten::_masked_softmax_backward", "", inference::like_first},
    Entry{"aten::_embedding_bag", "", inference::embedding_bag},
    Entry{"aten::_embedding_bag_forward_only", "", inference::embedding_bag_forward_only},
    // For calls as most are; ATen's Meta kernels are right about these operators, but Python.
    Entry{"aten::_embedding_bag_backward", "", inference::embedding_bag_backward, kMeta},
    Entry{"aten::_embedding_bag_per_sample_weights_backward", "",
          inference::embedding_bag_weights_backward, kMeta},
    Entry{"aten::mode", "", inference::mode, kMeta},
    Entry{"aten::median", "", inference::whole_median, kMeta},
    Entry{"aten::nanmedian", "", inference::whole_median, kMeta},
    Entry{"aten::prod", "", inference::product, kMeta},
    Entry{"aten::trace", "", inference::trace, kMeta},
    Entry{"aten::std_mean", "correction", inference::std_mean, kMeta},
    Entry{"aten::histc", "", inference::histc, kMeta},
    Entry{"aten::searchsorted", "Tensor", inference::searchsorted, kMeta},
    Entry{"aten::bucketize", "Tensor", inference::bucketize, kMeta},
    Entry{"aten::flip", "", inference::flip, kMeta},
    Entry{"aten::take", "", inference::take, kMeta},
    Entry{"aten::unfold_backward", "", inference::unfold_backward, kMeta},
    Entry{"aten::index", "Tensor", inference::index, kMeta},
    Entry{"aten::_index_put_impl_", "", inference::index_put, kMeta},
    Entry{"aten::index_fill_", "int_Scalar", inference::index_fill, kMeta},
    Entry{"aten::index_fill_", "int_Tensor", inference::index_fill, kMeta},
    Entry{"aten::masked_scatter_", "", inference::masked_scatter, kMeta},
    Entry{"aten::arange", "start_out", inference::arange, kMeta},
    Entry{"aten::linspace", "out", inference::linspace, kMeta},
    Entry{"aten::logspace", "out", inference::linspace, kMeta},
    Entry{"aten::logit", "", inference::pointwise_of_first, kMeta},
    Entry{"aten::angle", "", inference::angle, kMeta},
    Entry{"aten::log_sigmoid_forward", "", inference::log_sigmoid, kMeta},
    Entry{"aten::log_sigmoid_backward", "", inference::log_sigmoid_backward, kMeta},
    Entry{"aten::glu_backward", "", inference::glu_backward, kMeta},
    Entry{"aten::_prelu_kernel", "", inference::prelu, kMeta},
    Entry{"aten::_prelu_kernel_backward", "", inference::prelu_backward, kMeta},
    Entry{"aten::frexp", "Tensor_out", inference::frexp, kMeta},
    Entry{"aten::conj_physical", "out", inference::conj_physical, kMeta},
    Entry{"aten::addr", "", inference::outer_product, kMeta},
    Entry{"aten::grid_sampler_2d", "", inference::grid_sampler_2d, kMeta},
    Entry{"aten::grid_sampler_2d_backward", "", inference::grid_sampler_2d_backward, kMeta},
    Entry{"aten::grid_sampler_3d", "", inference::grid_sampler_3d, kMeta},
    Entry{"aten::grid_sampler_3d_backward", "", inference::grid_sampler_3d_backward, kMeta},
    Entry{"aten::im2col", "", inference::im2col, kMeta},
    Entry{"aten::col2im", "", inference::col2im, kMeta},
    Entry{"aten::_adaptive_avg_pool2d", "", inference::adaptive_avg_pool2d, kMeta},
    Entry{"aten::_adaptive_avg_pool2d_backward", "", inference::adaptive_avg_pool2d_backward,
          kMeta},
    Entry{"aten::_adaptive_avg_pool3d", "", inference::adaptive_avg_pool3d, kMeta},
    Entry{"aten::_adaptive_avg_pool3d_backward", "", inference::adaptive_avg_pool3d_backward,
          kMeta},
    Entry{"aten::max_pool3d_with_indices", "", inference::max_pool3d, kMeta},
    Entry{"aten::max_pool3d_with_indices_backward", "", inference::max_pool3d_backward, kMeta},
    Entry{"aten::max_unpool2d", "", inference::max_unpool2d, kMeta},
    Entry{"aten::max_unpool3d", "", inference::max_unpool3d, kMeta},
    Entry{"aten::replication_pad2d_backward", "", inference::pad2d_backward, kMeta},
    Entry{"aten::replication_pad3d_backward", "", inference::pad3d_backward, kMeta},
    Entry{"aten::reflection_pad2d", "", inference::reflection_pad2d, kMeta},
    Entry{"aten::reflection_pad2d_backward", "", inference::pad2d_backward, kMeta},
    Entry{"aten::_cdist_forward", "", inference::cdist, kMeta},
    Entry{"aten::_cdist_backward", "", inference::cdist_backward, kMeta},
    Entry{"aten::addbmm", "", inference::addbmm, kMeta},
    Entry{"aten::cholesky", "", inference::cholesky, kMeta},
    Entry{"aten::cholesky_inverse", "", inference::cholesky, kMeta},
    Entry{"aten::_cholesky_solve_helper", "", inference::cholesky_solve, kMeta},
    Entry{"aten::huber_loss", "", inference::huber_loss, kMeta},
    Entry{"aten::huber_loss_backward", "out", inference::loss_gradient, kMeta},
    Entry{"aten::smooth_l1_loss_backward", "grad_input", inference::loss_gradient, kMeta},
    Entry{"aten::binary_cross_entropy", "", inference::binary_cross_entropy, kMeta},
    Entry{"aten::binary_cross_entropy_backward", "", inference::binary_cross_entropy_backward,
          kMeta},
    Entry{"aten::multi_margin_loss", "", inference::multi_margin_loss, kMeta},
    Entry{"aten::nll_loss2d_forward", "", inference::nll_loss2d, kMeta},
    Entry{"aten::nll_loss2d_backward", "", inference::nll_loss2d_backward, kMeta},
};

}  // namespace

Geometry::Geometry(c10::ScalarType dtype, c10::IntArrayRef sizes)
    : dtype(dtype), sizes(sizes.begin(), sizes.end()), strides(c10::contiguous_strides(sizes)) {}

Geometry Geometry::column_major(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  Geometry result(dtype, sizes);
  const std::size_t rows = sizes.size() - 2, columns = sizes.size() - 1;
  std::swap(result.sizes[rows], result.sizes[columns]);
  result.strides = c10::contiguous_strides(result.sizes);
  std::swap(result.sizes[rows], result.sizes[columns]);
  std::swap(result.strides[rows], result.strides[columns]);
  return result;
}

Geometry Geometry::like(const at::Tensor& tensor) {
  at::DimVector strides(tensor.strides());
  if (!tensor.is_non_overlapping_and_dense()) {
    const auto dense = at::infer_dense_strides(tensor.sizes(), tensor.strides());
    strides.assign(dense.begin(), dense.end());
  }
  return {tensor.scalar_type(), at::DimVector(tensor.sizes()), std::move(strides)};
}

KnownRule inference_rule(const c10::OperatorName& name) {
  const auto* const found = std::ranges::find_if(kRules, [&](const Entry& entry) {
    return entry.name == name.name && entry.overload == name.overload_name;
  });
  return found == kRules.end() ? KnownRule() : KnownRule{found->rule, found->otherwise};
}

std::optional<std::int64_t> wrapped_dim(std::int64_t dim, std::int64_t dims) {
  const std::int64_t count = std::max<std::int64_t>(dims, 1);
  if (dim < -count || dim >= count) return std::nullopt;
  return dim < 0 ? dim + count : dim;
}

bool is_canonical(const at::Tensor& tensor) {
  return tensor.strides() == c10::IntArrayRef(c10::contiguous_strides(tensor.sizes()));
}

std::optional<Geometry> pointwise(std::initializer_list<at::Tensor> operands) {
  const c10::ScalarType dtype = operands.begin()->scalar_type();
  const at::Tensor* first = nullptr;  // numbers have no say in the layout
  bool alike = true, canonical = true;
  at::DimVector sizes;
  for (const at::Tensor& operand : operands) {
    if (operand.scalar_type() != dtype || !is_floating(dtype)) return std::nullopt;
    if (operand.dim() == 0) continue;
    if (first == nullptr) first = &operand;
    alike = alike && operand.sizes() == first->sizes() && operand.strides() == first->strides();
    canonical = canonical && is_canonical(operand);
    sizes = at::infer_size_dimvector(sizes, operand.sizes());
  }
  if (canonical) return Geometry(dtype, sizes);
  const bool ambiguous = std::ranges::find(sizes, 1) != sizes.end() || first->numel() == 0;
  if (!alike || ambiguous || !first->is_non_overlapping_and_dense()) return std::nullopt;
  return Geometry(dtype, sizes, at::DimVector(first->strides()));
}

}  // namespace loom::ops
