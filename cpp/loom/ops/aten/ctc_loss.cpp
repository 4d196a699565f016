// SPDX-License-Identifier: BSD-3-Clause
// The connectionist temporal classification loss: samples do not meet, but their lengths are lists
// of numbers, and the kernels return tables of their own. A block is a call of ATen's kernel for
// some samples.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/split.h"
#include "loom/ops/meta/rule.h"

#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

namespace loom::ops {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

// Of a state of a sample at a time, of which a target has two: three exponentials and a logarithm.
constexpr double kStateCost = 40;

/// What a call says beside its tensors.
struct Ctc {
  std::vector<std::int64_t> inputs, targets;  ///< lengths, one a sample
  std::int64_t blank;
  bool zero_infinity;

  [[nodiscard]] std::int64_t samples() const { return static_cast<std::int64_t>(inputs.size()); }
  /// Samples of a block.
  [[nodiscard]] std::int64_t block() const {
    const std::int64_t states = 2 * *std::ranges::max_element(targets) + 1;
    const std::int64_t times = *std::ranges::max_element(inputs);
    return block_length(samples(), kStateCost * static_cast<double>(states * times));
  }
};

/// Samples [first, first + count) of a call.
struct Samples {
  const Ctc& ctc;
  std::int64_t first, count;

  [[nodiscard]] at::Tensor of(const at::Tensor& tensor, std::int64_t dim) const {
    return tensor.narrow(dim, first, count);
  }
  [[nodiscard]] c10::IntArrayRef inputs() const {
    return c10::IntArrayRef(ctc.inputs).slice(first, count);
  }
  [[nodiscard]] c10::IntArrayRef target_lengths() const {
    return c10::IntArrayRef(ctc.targets).slice(first, count);
  }
  /// Targets are rows of a matrix, or one after the other.
  [[nodiscard]] at::Tensor targets(const at::Tensor& all) const {
    if (all.dim() == 2) return of(all, 0);
    const auto begin = ctc.targets.begin(), here = begin + first;
    return all.narrow(0, std::accumulate(begin, here, std::int64_t{0}),
                      std::accumulate(here, here + count, std::int64_t{0}));
  }
};

template <class Body>
void for_samples(Grid& grid, const Ctc& ctc, Body body) {
  const std::int64_t block = ctc.block();
  grid.run(ceil_div(ctc.samples(), block), [&](std::int64_t i) {
    const std::int64_t first = i * block;
    body(Samples{ctc, first, std::min(block, ctc.samples() - first)});
  });
}

void losses(Grid& grid, const TensorRef& loss_ref, const TensorRef& table_ref,
            const TensorRef& scores_ref, const TensorRef& targets_ref, const Ctc& ctc) {
  const at::Tensor loss = loss_ref.alias(), table = table_ref.alias();
  const at::Tensor scores = scores_ref.alias(), targets = targets_ref.alias();
  for_samples(grid, ctc, [&](const Samples& samples) {
    const auto [losses, tables] =
        at::_ctc_loss(samples.of(scores, 1), samples.targets(targets), samples.inputs(),
                      samples.target_lengths(), ctc.blank, ctc.zero_infinity);
    samples.of(loss, 0).copy_(losses);
    // As wide as the longest of these targets, and nothing after the longest input: what else a
    // row has is nobody's.
    const std::int64_t steps = std::max<std::int64_t>(std::ranges::max(samples.inputs()), 1);
    samples.of(table, 0)
        .narrow(1, 0, steps)
        .narrow(2, 0, tables.size(2))
        .copy_(tables.narrow(1, 0, steps));
  });
}

void gradients(Grid& grid, const TensorRef& to_ref, const TensorRef& grad_ref,
               const TensorRef& scores_ref, const TensorRef& targets_ref, const TensorRef& loss_ref,
               const TensorRef& table_ref, const Ctc& ctc) {
  const at::Tensor to = to_ref.alias(), grad = grad_ref.alias(), scores = scores_ref.alias();
  const at::Tensor targets = targets_ref.alias(), loss = loss_ref.alias();
  const at::Tensor table = table_ref.alias();
  for_samples(grid, ctc, [&](const Samples& samples) {
    samples.of(to, 1).copy_(
        at::_ctc_loss_backward(samples.of(grad, 0), samples.of(scores, 1), samples.targets(targets),
                               samples.inputs(), samples.target_lengths(), samples.of(loss, 0),
                               samples.of(table, 0), ctc.blank, ctc.zero_infinity));
  });
}

Two ctc_loss(const at::Tensor& scores, const at::Tensor& targets, c10::IntArrayRef input_lengths,
             c10::IntArrayRef target_lengths, std::int64_t blank, bool zero_infinity) {
  const std::array<c10::IValue, 6> arguments{scores,         targets, input_lengths,
                                             target_lengths, blank,   zero_infinity};
  const auto inferred = targets.device() == scores.device() && scores.is_privateuseone()
                            ? inference::ctc_loss(arguments)
                            : std::nullopt;
  if (!inferred) {
    return call_fallback<Two, const at::Tensor&, const at::Tensor&, c10::IntArrayRef,
                         c10::IntArrayRef, std::int64_t, bool>(
        "aten::_ctc_loss", "", scores, targets, input_lengths, target_lengths, blank,
        zero_infinity);
  }
  const auto made = [&](const Geometry& geometry) {
    return empty(geometry.sizes, geometry.dtype, scores.device());
  };
  Two results{made((*inferred)[0]), made((*inferred)[1])};
  launch("_ctc_loss", Custom{}, losses, out(std::get<0>(results)), out(std::get<1>(results)),
         scores, targets.contiguous(),
         Ctc{input_lengths.vec(), target_lengths.vec(), blank, zero_infinity});
  return results;
}

at::Tensor ctc_loss_backward(const at::Tensor& grad, const at::Tensor& scores,
                             const at::Tensor& targets, c10::IntArrayRef input_lengths,
                             c10::IntArrayRef target_lengths, const at::Tensor& loss,
                             const at::Tensor& table, std::int64_t blank, bool zero_infinity) {
  const std::array<c10::IValue, 6> arguments{scores,         targets, input_lengths,
                                             target_lengths, blank,   zero_infinity};
  const std::int64_t samples = scores.dim() == 3 ? scores.size(1) : 0;
  const bool alike = grad.sizes() == loss.sizes() && grad.dim() == 1 && grad.size(0) == samples &&
                     table.dim() == 3 && table.size(0) == samples &&
                     grad.scalar_type() == scores.scalar_type();
  const bool here = targets.device() == scores.device() && grad.device() == scores.device() &&
                    scores.is_privateuseone();
  if (!alike || !here || !inference::ctc_loss(arguments)) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         c10::IntArrayRef, c10::IntArrayRef, const at::Tensor&, const at::Tensor&,
                         std::int64_t, bool>("aten::_ctc_loss_backward", "", grad, scores, targets,
                                             input_lengths, target_lengths, loss, table, blank,
                                             zero_infinity);
  }
  at::Tensor to = empty(scores.sizes(), scores.scalar_type(), scores.device());
  launch("_ctc_loss_backward", Custom{}, gradients, out(to), grad, scores, targets.contiguous(),
         loss, table, Ctc{input_lengths.vec(), target_lengths.vec(), blank, zero_infinity});
  return to;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_ctc_loss", TORCH_FN(ctc_loss));
  library.impl("_ctc_loss_backward", TORCH_FN(ctc_loss_backward));
}

}  // namespace loom::ops
