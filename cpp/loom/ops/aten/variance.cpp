// SPDX-License-Identifier: BSD-3-Clause
// Variances and standard deviations, which ATen has no structured form of.
#include "loom/backend/registration.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/cuts/reduce.h"
#include "loom/ops/recipes/rows/all_elements.h"
#include "loom/ops/recipes/rows/variances.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/std_mean_native.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_native.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/var_mean_native.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_native.h>
#include <ATen/ops/var_ops.h>

namespace loom::ops {
namespace {

/// Of chunks: means and sums of squared distances from them, which are then put together.
void variance_of_chunks(Grid& grid, const TensorRef& variance, const TensorRef& mean,
                        const TensorRef& input, Chunks chunks, Reduced reduced, double correction,
                        bool root) {
  at::Tensor result = variance.alias();
  if (chunks.dim == Chunks::kFlat) {
    result = result.as_strided({}, {});
    reduced = {.mask = 1, .keepdim = false};
  }
  const at::DimVector dims = reduced.dims(chunks.dim == Chunks::kFlat ? 1 : input.dim());
  const std::int64_t count = chunks.count();
  at::DimVector sizes{count};
  sizes.append(result.sizes().begin(), result.sizes().end());
  const auto doubles = c10::TensorOptions(c10::kCPU).dtype(c10::kDouble);
  const at::Tensor means = at::empty(sizes, doubles), squares = at::empty(sizes, doubles);
  const double of_item =
      static_cast<double>(input.numel()) / static_cast<double>(result.numel() * chunks.items);
  grid.run(count, [&](std::int64_t index) {
    at::Tensor part = chunks.part(input, index);
    if (c10::isReducedFloatingType(part.scalar_type())) part = part.to(c10::kFloat);
    at::Tensor of_part = at::empty(result.sizes(), part.options());
    at::Tensor centre = at::empty(result.sizes(), part.options());
    // Roots are in the range of the elements, which squares need not be.
    at::native::std_mean_correction_out(part, dims, at::Scalar(0), reduced.keepdim, of_part,
                                        centre);
    means.select(0, index).copy_(centre);
    squares.select(0, index).copy_(of_part);
  });
  squares.square_();
  at::DimVector along(sizes.size(), 1);
  along[0] = count;
  // Elements of each part; the last one may have fewer.
  const at::Tensor elements =
      (chunks.items - at::arange(count, doubles) * chunks.block).clamp_max(chunks.block) * of_item;
  const at::Tensor weights = elements.view(along);
  // As in ATen, an infinite mean of elements that others follow makes the whole one NaN.
  const at::Tensor nan_or_zero = (means.narrow(0, 0, count - 1) * 0).sum(0);
  const at::Tensor all = elements.sum(), centre = (means * weights).sum(0) / all + nan_or_zero;
  const at::Tensor spread = ((squares + (means - centre).square()) * weights).sum(0);
  at::Tensor found = spread / (all - correction);
  if (root) found.sqrt_();
  result.copy_(found);
  if (mean.defined()) {
    at::Tensor to = mean.alias();
    (chunks.dim == Chunks::kFlat ? to.as_strided({}, {}) : to).copy_(centre);
  }
}

/// By kernels of ours, if they can.
bool launch_own(const char* name, const at::Tensor& variance, const at::Tensor& mean,
                const at::Tensor& self, Reduced reduced, double correction, bool root) {
  const bool one = variance.numel() == 1;
  if (one && launch_variance_of_all(name, variance, mean, self, correction, root)) return true;
  return launch_variances(name, variance, mean, self, reduced, correction, root);
}

template <int kOutputs, bool kRoot>
struct VarianceMeta : at::impl::MetaBase {
  void meta(const at::Tensor& self, at::OptionalIntArrayRef dims, at::OptionalScalarRef,
            bool keepdim) {
    TORCH_CHECK(self.is_floating_point() || self.is_complex(),
                kOutputs == 1 ? "std and var"
                : kRoot       ? "std_mean"
                              : "var_mean",
                " only support floating point and complex dtypes");
    const auto mask = at::native::make_dim_mask(dims, self.dim());
    const auto shape = at::native::shape_from_dim_mask(self, mask, keepdim);
    const auto real = self.options().dtype(c10::toRealValueType(self.scalar_type()));
    set_output_raw_strided(0, shape, {}, real);
    if constexpr (kOutputs == 2) set_output_raw_strided(1, shape, {}, self.options());
  }
};

/// var, std, and these with the mean: (self, dims, correction, keepdim).
template <bool kRoot>
struct Variance {
  static constexpr bool kProbesDtypes = true;

  template <auto kCpu, std::size_t kOutputs>
  static void launch(const char* name, const std::array<at::Tensor, kOutputs>& outputs,
                     const at::Tensor& self, at::OptionalIntArrayRef dims,
                     const std::optional<at::Scalar>& correction, bool keepdim) {
    constexpr double kCost = 4;  // of Welford's steps, which are not vectors
    const Reduced reduced = reduced_dims(self, dims, keepdim);
    const at::Tensor mean = kOutputs == 2 ? outputs[kOutputs - 1] : at::Tensor();
    const double less = correction.value_or(1).toDouble();
    if (launch_own(name, outputs[0], mean, self, reduced, less, kRoot)) return;
    const auto chunks = self.is_complex() ? std::nullopt : cut_reduced(self, reduced, kCost);
    const auto each = static_cast<double>(self.numel()) / static_cast<double>(outputs[0].numel());
    if (chunks && less < each) {
      return ops::launch(name, Custom{}, variance_of_chunks, out(outputs[0]), out(mean), self,
                         *chunks, reduced, less, kRoot);
    }
    const at::DimVector list = reduced.dims(self.dim());
    launch_cpu<kCpu>(name, cut_kept(self, reduced, kOutputs, kCost), outputs, self,
                     c10::IntArrayRef(list), correction, keepdim);
  }
};

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace op = at::_ops;
  structured<VarianceMeta<1, false>, Variance<false>, op::var_correction_out, at::native::var_out,
             op::var_correction>(m);
  structured<VarianceMeta<1, true>, Variance<true>, op::std_correction_out, at::native::std_out,
             op::std_correction>(m);
  structured<VarianceMeta<2, false>, Variance<false>, op::var_mean_correction_out,
             at::native::var_mean_correction_out, op::var_mean_correction>(m);
  structured<VarianceMeta<2, true>, Variance<true>, op::std_mean_correction_out,
             at::native::std_mean_correction_out, op::std_mean_correction>(m);
}

}  // namespace loom::ops
