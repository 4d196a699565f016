// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/inference/rule.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace loom::ops {
namespace {

at::DimVector contiguous_strides(c10::IntArrayRef sizes) {
  at::DimVector strides(sizes.begin(), sizes.end());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

struct Entry {
  std::string_view name, overload;
  InferenceRule rule;
};

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
};

}  // namespace

Geometry::Geometry(c10::ScalarType dtype, c10::IntArrayRef sizes)
    : dtype(dtype), sizes(sizes.begin(), sizes.end()), strides(contiguous_strides(sizes)) {}

Geometry Geometry::column_major(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  Geometry result(dtype, sizes);
  const std::size_t rows = sizes.size() - 2, columns = sizes.size() - 1;
  std::swap(result.sizes[rows], result.sizes[columns]);
  result.strides = contiguous_strides(result.sizes);
  std::swap(result.sizes[rows], result.sizes[columns]);
  std::swap(result.strides[rows], result.strides[columns]);
  return result;
}

InferenceRule inference_rule(const c10::OperatorName& name) {
  const auto* const found = std::ranges::find_if(kRules, [&](const Entry& entry) {
    return entry.name == name.name && entry.overload == name.overload_name;
  });
  return found == kRules.end() ? nullptr : found->rule;
}

std::optional<std::int64_t> wrapped_dim(std::int64_t dim, std::int64_t dims) {
  const std::int64_t count = std::max<std::int64_t>(dims, 1);
  if (dim < -count || dim >= count) return std::nullopt;
  return dim < 0 ? dim + count : dim;
}

}  // namespace loom::ops
