// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/reduce.h"
#include "loom/ops/launch/call_length.h"

#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <limits>

namespace loom::ops {
namespace {

// Below this a reduction is not worth cutting.
constexpr double kSmallReduction = 65'536;
// What a reduction of dense floating-point numbers to one takes of what others take: a loop in
// vectors, of which a block of some microseconds has 128 Ki floats.
constexpr double kDenseFactor = 0.25;
// A kept dimension this long gives enough blocks.
constexpr std::int64_t kEnoughItems = 16;
// Elements side by side in memory that one block should take of each row: some cache lines, or one
// where what is done with an element takes much longer than its way from memory.
constexpr std::int64_t kShortRun = 64, kLine = 16;
constexpr double kExpensive = 10;

std::int64_t shortest_run(double cost) { return cost < kExpensive ? kShortRun : kLine; }

bool good_kept_dim(const at::Tensor& input, std::int64_t dim, double cost) {
  if (input.stride(dim) != 1) return input.size(dim) >= kEnoughItems;
  const std::int64_t runs = cost < kExpensive ? kEnoughItems / 2 : kEnoughItems / 4;
  return input.size(dim) >= runs * shortest_run(cost);
}

// The outermost good one, else none. `cost` is that of an element.
std::int64_t kept_dim(const at::Tensor& input, Reduced reduced, double cost) {
  std::int64_t best = -1;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    if (reduced.reduces(d) || !good_kept_dim(input, d, cost)) continue;
    if (best < 0 || input.stride(d) > input.stride(best)) best = d;
  }
  return best;
}

double total_cost(const at::Tensor& input, double cost) {
  return cost * static_cast<double>(input.numel());
}

}  // namespace

Reduced reduced_dims(const at::Tensor& input, c10::OptionalIntArrayRef dims, bool keepdim) {
  Reduced reduced{.mask = 0, .keepdim = keepdim};
  if (!dims || dims->empty()) {
    reduced.mask = ~std::uint64_t{0};
    return reduced;
  }
  for (const std::int64_t dim : *dims) {
    reduced.mask |= std::uint64_t{1} << c10::maybe_wrap_dim(dim, input.dim());
  }
  return reduced;
}

Reduced reduced_dim(const at::Tensor& input, std::int64_t dim, bool keepdim) {
  return reduced_dims(input, c10::IntArrayRef(dim), keepdim);
}

ReducedRuns reduced_runs(const at::Tensor& input, Reduced reduced) {
  constexpr std::int64_t kShortest = 16;
  ReducedRuns runs;
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), length = 1;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    if (input.size(d) == 1) continue;
    if (reduced.reduces(d)) runs.reduced *= input.size(d);
    if (input.stride(d) >= least) continue;
    least = input.stride(d);
    length = input.size(d);
    runs.innermost_is_kept = !reduced.reduces(d);
  }
  runs.are_short = length < kShortest;
  return runs;
}

Along cut_kept(const at::Tensor& input, Reduced reduced, int outputs, double cost) {
  Along along;
  along.dims.fill(SlicePlan::kWhole);
  if (total_cost(input, cost) < kSmallReduction) return along;
  const std::int64_t dim = kept_dim(input, reduced, cost);
  if (dim < 0) return along;
  std::int64_t output_dim = dim;
  for (std::int64_t d = 0; d < dim && !reduced.keepdim; ++d) output_dim -= reduced.reduces(d);
  std::fill_n(along.dims.begin(), outputs, static_cast<std::int8_t>(output_dim));
  along.dims[outputs] = static_cast<std::int8_t>(dim);
  const std::int64_t items = input.size(dim);
  along.cost = total_cost(input, cost) / static_cast<double>(items);
  along.block = call_length(items, along.cost);
  if (input.stride(dim) == 1) along.block = std::max(along.block, shortest_run(cost));
  return along;
}

std::optional<Chunks> cut_reduced(const at::Tensor& input, Reduced reduced, double cost) {
  const bool all = (~reduced.mask & ((std::uint64_t{1} << input.dim()) - 1)) == 0;
  const bool dense = all && input.is_non_overlapping_and_dense();
  const bool fast =
      dense && (input.scalar_type() == c10::kFloat || input.scalar_type() == c10::kDouble);
  const double total = total_cost(input, fast ? cost * kDenseFactor : cost);
  if (total < kSmallReduction || kept_dim(input, reduced, cost) >= 0) return std::nullopt;
  Chunks chunks;
  if (dense) {
    chunks.items = input.numel();
  } else {
    for (std::int64_t d = 0; d < input.dim(); ++d) {
      if (!reduced.reduces(d) || input.size(d) <= chunks.items) continue;
      chunks.dim = d;
      chunks.items = input.size(d);
    }
    if (chunks.dim == Chunks::kFlat) return std::nullopt;
  }
  chunks.block = call_length(chunks.items, total / static_cast<double>(chunks.items));
  if (chunks.count() < 2) return std::nullopt;
  return chunks;
}

at::Tensor Chunks::part(const TensorRef& input, std::int64_t index) const {
  const std::int64_t begin = index * block;
  const std::int64_t length = std::min(block, items - begin);
  return dim == kFlat ? input.alias_flat(begin, length) : input.alias_slice(dim, begin, length);
}

}  // namespace loom::ops
