// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/cross_entropy.h"

#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/kernels/norm/class_losses.h"
#include "loom/kernels/norm/short_rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

namespace loom::ops {
namespace {

using kernels::norm::RowClasses;

// Of one logit: an exponential, and a pass over what is in the cache.
constexpr double kLogitCost = 8;

c10::ScalarType loss_dtype(const at::Tensor& self) {
  return self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_logits(const at::Tensor& logits, const at::Tensor& target) {
  TORCH_CHECK(logits.dim() == 2 && target.dim() == 1 &&
                  logits.sym_size(0).sym_eq(target.sym_size(0)).guard_bool(__FILE__, __LINE__),
              "cross_entropy: expected (N, C) logits and (N) classes, got ", logits.sym_sizes(),
              " and ", target.sym_sizes());
  TORCH_CHECK(logits.is_floating_point() && target.scalar_type() == at::kLong,
              "cross_entropy: expected floating logits and int64 classes, got ",
              logits.scalar_type(), " and ", target.scalar_type());
}

void check_gradient(const at::Tensor& grad, const at::Tensor& softmax, const at::Tensor& target,
                    const at::Tensor& total, std::int64_t reduction) {
  check_logits(softmax, target);
  const bool reduces = reduction != at::Reduction::None;
  TORCH_CHECK(
      grad.dim() == (reduces ? 0 : 1) && total.dim() == 0 &&
          (reduces || grad.sym_size(0).sym_eq(softmax.sym_size(0)).guard_bool(__FILE__, __LINE__)),
      "cross_entropy_backward: expected a gradient of the loss's shape, got ", grad.sym_sizes());
  TORCH_CHECK(softmax.scalar_type() == loss_dtype(softmax) &&
                  grad.scalar_type() == softmax.scalar_type() &&
                  total.scalar_type() == softmax.scalar_type(),
              "cross_entropy_backward: expected the dtype of the loss throughout, got ",
              grad.scalar_type(), ", ", softmax.scalar_type(), " and ", total.scalar_type());
}

/// What the kernels share: the rows of a block, and which class each has.
struct RowBlocks {
  std::int64_t rows, classes, block, ignore_index, reduction;

  RowBlocks(const at::Tensor& self, std::int64_t reduced, std::int64_t ignored)
      : rows(self.size(0)),
        classes(self.size(1)),
        block(block_length(rows, kLogitCost * static_cast<double>(classes))),
        ignore_index(ignored),
        reduction(reduced) {}

  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(rows, block); }
  [[nodiscard]] std::int64_t begin(std::int64_t index) const noexcept { return index * block; }
  [[nodiscard]] std::int64_t length(std::int64_t index) const noexcept {
    return std::min(block, rows - begin(index));
  }
  /// ATen's loops over so few classes cost what they are begun with.
  [[nodiscard]] bool short_rows() const noexcept { return classes <= kernels::norm::kShortRow; }
  [[nodiscard]] at::Tensor part(const TensorRef& logits, std::int64_t index) const {
    return logits.alias_slice(0, begin(index), length(index));
  }
};

RowClasses classes_of(const TensorRef& target, const RowBlocks& blocks) {
  return {elements<const std::int64_t>(target), blocks.classes, blocks.ignore_index};
}

// In both kernels: the errors of the first are raised late, and the second runs all the same.
void check_classes(const RowClasses& classes, std::int64_t begin, std::int64_t end) {
  const std::int64_t wrong = classes.first_wrong(begin, end);
  TORCH_CHECK_INDEX(wrong == end, "Target ", classes.of_rows[wrong], " is out of bounds.");
}

void short_losses(const RowClasses& classes, std::int64_t begin, std::int64_t end,
                  const float* logits, float* softmax, float* losses) {
  const std::int64_t rows = end - begin, room = kernels::norm::short_rows_room(classes.count);
  float* const scratch = row_scratch(room + 2 * rows, 1);
  float *const maxima = scratch + room, *const sums = maxima + rows;
  kernels::norm::softmax_short_rows(softmax, logits, rows, classes.count, maxima, sums, scratch);
  kernels::norm::row_losses<float>(classes, begin, end, logits, maxima, sums, losses);
}

// Runs on the worker.
template <class Scalar>
void forward(Grid& grid, const TensorRef& loss, const TensorRef& total, const TensorRef& softmax,
             const TensorRef& self, const TensorRef& target, RowBlocks blocks) {
  constexpr auto kDtype = c10::CppTypeToScalarType<Scalar>::value;
  const RowClasses classes = classes_of(target, blocks);
  const bool reduces = blocks.reduction != at::Reduction::None;
  std::vector<Scalar> reduced(reduces ? static_cast<std::size_t>(blocks.rows) : 0);
  Scalar* const losses = reduces ? reduced.data() : elements<Scalar>(loss);
  grid.run(blocks.count(), [&](std::int64_t index) {
    const std::int64_t begin = blocks.begin(index), end = begin + blocks.length(index);
    const at::Tensor logits = blocks.part(self, index).to(kDtype);
    const bool keeps = softmax.numel() != 0;
    check_classes(classes, begin, end);
    if constexpr (std::is_same_v<Scalar, float>) {
      if (blocks.short_rows()) {
        float* const kept = keeps ? elements<float>(softmax) + begin * blocks.classes : nullptr;
        return short_losses(classes, begin, end, logits.const_data_ptr<float>(), kept, losses);
      }
    }
    at::Tensor values = keeps ? blocks.part(softmax, index) : at::empty_like(logits);
    at::cpu::_softmax_outf(logits, 1, false, values);
    kernels::norm::row_losses(classes, begin, end, logits.const_data_ptr<Scalar>(),
                              values.const_data_ptr<Scalar>(), losses);
  });
  const std::int64_t counted = classes.rows_that_count(blocks.rows);
  *elements<Scalar>(total) = static_cast<Scalar>(counted);
  if (!reduces) return;
  double sum = std::accumulate(reduced.begin(), reduced.end(), 0.0);
  if (blocks.reduction == at::Reduction::Mean) sum /= static_cast<double>(counted);
  *elements<Scalar>(loss) = static_cast<Scalar>(sum);
}

// Runs on the worker. result = (softmax - one at the target) * scale of the row
template <class Result, class Scalar>
void backward(Grid& grid, const TensorRef& result, const TensorRef& grad, const TensorRef& softmax,
              const TensorRef& target, const TensorRef& total, RowBlocks blocks) {
  constexpr auto kDtype = c10::CppTypeToScalarType<Scalar>::value;
  const RowClasses classes = classes_of(target, blocks);
  const std::int64_t grad_step = blocks.reduction == at::Reduction::None ? 1 : 0;
  const Scalar divisor =
      blocks.reduction == at::Reduction::Mean ? *elements<const Scalar>(total) : Scalar{1};
  grid.run(blocks.count(), [&](std::int64_t index) {
    const std::int64_t length = blocks.length(index), begin = blocks.begin(index),
                       end = begin + length;
    check_classes(classes, begin, end);
    const at::Tensor scales = at::empty({length, 1}, c10::TensorOptions(c10::kCPU).dtype(kDtype));
    kernels::norm::row_scales(classes, begin, end, elements<const Scalar>(grad), grad_step, divisor,
                              scales.mutable_data_ptr<Scalar>());
    const at::Tensor from = blocks.part(softmax, index);
    at::Tensor to = blocks.part(result, index);
    const auto* const weights = from.const_data_ptr<Scalar>();
    const auto* const factors = scales.const_data_ptr<Scalar>();
    auto* const gradient = stored(to.mutable_data_ptr<Result>());
    if (blocks.short_rows()) {
      kernels::norm::scale_rows(classes, begin, end, weights, factors, gradient);
    } else {
      at::cpu::mul_outf(from, scales, to);
    }
    kernels::norm::subtract_classes(classes, begin, end, weights, factors, gradient);
  });
}

auto backward_for(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return backward<double, double>;
    case at::kBFloat16:
      return backward<c10::BFloat16, float>;
    case at::kHalf:
      return backward<c10::Half, float>;
    default:
      return backward<float, float>;
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_loom(const at::Tensor& self,
                                                                  const at::Tensor& target,
                                                                  std::int64_t reduction,
                                                                  std::int64_t ignore_index,
                                                                  bool keep_softmax) {
  check_logits(self, target);
  const auto dtype = loss_dtype(self);
  const bool reduces = reduction != at::Reduction::None;
  const auto sizes = self.sizes();
  const at::Tensor loss =
      empty(reduces ? c10::IntArrayRef{} : sizes.slice(0, 1), dtype, self.device());
  const at::Tensor total = empty({}, dtype, self.device());
  const at::Tensor softmax =
      empty(keep_softmax ? sizes : c10::IntArrayRef{0}, dtype, self.device());
  const auto kernel = dtype == at::kDouble ? forward<double> : forward<float>;
  launch("cross_entropy_loss", Custom{}, kernel, out(loss), out(total), out(softmax),
         self.contiguous(), target.contiguous(), RowBlocks(self, reduction, ignore_index));
  return {loss, total, softmax};
}

at::Tensor cross_entropy_backward_loom(const at::Tensor& grad, const at::Tensor& softmax,
                                       const at::Tensor& target, const at::Tensor& total,
                                       std::int64_t reduction, std::int64_t ignore_index,
                                       c10::ScalarType dtype) {
  check_gradient(grad, softmax, target, total, reduction);
  const at::Tensor result = empty(softmax.sizes(), dtype, softmax.device());
  launch("cross_entropy_loss_backward", Custom{}, backward_for(dtype), out(result),
         grad.contiguous(), softmax.contiguous(), target.contiguous(), total,
         RowBlocks(softmax, reduction, ignore_index));
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_meta(const at::Tensor& self,
                                                                  const at::Tensor& target,
                                                                  std::int64_t reduction,
                                                                  c10::SymInt, bool keep_softmax) {
  check_logits(self, target);
  const auto options = self.options().dtype(loss_dtype(self));
  c10::SymDimVector sizes;
  if (reduction == at::Reduction::None) sizes.push_back(self.sym_size(0));
  return {at::empty_symint(sizes, options), at::empty({}, options),
          keep_softmax ? at::empty_symint(self.sym_sizes(), options) : at::empty({0}, options)};
}

at::Tensor cross_entropy_backward_meta(const at::Tensor& grad, const at::Tensor& softmax,
                                       const at::Tensor& target, const at::Tensor& total,
                                       std::int64_t reduction, c10::SymInt, c10::ScalarType dtype) {
  check_gradient(grad, softmax, target, total, reduction);
  return at::empty_symint(softmax.sym_sizes(), softmax.options().dtype(dtype));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy(const at::Tensor& self,
                                                             const at::Tensor& target,
                                                             std::int64_t reduction,
                                                             c10::SymInt ignore_index,
                                                             bool keep_softmax) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("loom::cross_entropy", "")
                             .typed<decltype(cross_entropy)>();
  return op.call(self, target, reduction, std::move(ignore_index), keep_softmax);
}

at::Tensor cross_entropy_backward(const at::Tensor& grad, const at::Tensor& softmax,
                                  const at::Tensor& target, const at::Tensor& total,
                                  std::int64_t reduction, c10::SymInt ignore_index,
                                  c10::ScalarType dtype) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("loom::cross_entropy_backward", "")
                             .typed<decltype(cross_entropy_backward)>();
  return op.call(grad, softmax, target, total, reduction, std::move(ignore_index), dtype);
}

LOOM_LIBRARY_FRAGMENT(loom, m) {
  m.def(
      "cross_entropy(Tensor self, Tensor target, int reduction, SymInt ignore_index,"
      " bool keep_softmax) -> (Tensor loss, Tensor total, Tensor softmax)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "cross_entropy_backward(Tensor grad, Tensor softmax, Tensor target, Tensor total,"
      " int reduction, SymInt ignore_index, ScalarType dtype) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}

LOOM_LIBRARY_IMPL(loom, PrivateUse1, m) {
  m.impl("cross_entropy", TORCH_FN(cross_entropy_loom));
  m.impl("cross_entropy_backward", TORCH_FN(cross_entropy_backward_loom));
}

LOOM_LIBRARY_IMPL(loom, Meta, m) {
  m.impl("cross_entropy", TORCH_FN(cross_entropy_meta));
  m.impl("cross_entropy_backward", TORCH_FN(cross_entropy_backward_meta));
}

}  // namespace loom::ops
