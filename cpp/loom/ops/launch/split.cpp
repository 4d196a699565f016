// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/split.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/call_length.h"
#include "loom/ops/launch/self_overlap.h"

#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>

namespace loom::ops {
namespace {

// A block below this costs less than handing it to another core: about 10 us of work.
constexpr double kBlockCost = 32768;
// Enough to balance any machine that one device is likely to have.
constexpr std::int64_t kMaxBlocks = 256;
// Calls of ATen that are enough to share; beyond, a call takes up to so many times as long as a
// block has to: of 40 us of work aliases, checks and set-up are a tenth.
constexpr double kEnoughCalls = 32, kLongestCall = 4;

// True when the operand's elements lie in memory exactly as those of `first`.
bool same_dense_layout(const TensorRef& first, const TensorRef& other) {
  return other.dtype() != c10::ScalarType::Undefined && other.sizes() == first.sizes() &&
         (other.strides() == first.strides() || (other.is_contiguous() && first.is_contiguous()));
}

bool all_flat(Operands operands) {
  const TensorRef& first = *operands[0];
  if (!first.is_dense()) return false;
  return std::all_of(operands.begin() + 1, operands.end(), [&](const TensorRef* operand) {
    return !operand->defined() || operand->immediate() || operand->numel() == 1 ||
           same_dense_layout(first, *operand);
  });
}

// Whether results do: the first operand, and indices that belong to it.
bool overlap_themselves(Operands operands) {
  if (operands.empty() || !operands[0]->defined()) return false;
  if (may_overlap_itself(*operands[0])) return true;
  return operands.size() > 1 && operands[1]->dtype() == c10::kLong &&
         operands[1]->sizes() == operands[0]->sizes() && may_overlap_itself(*operands[1]);
}

// The outermost dimension that gives enough blocks, else the longest one.
int widest_dim(const TensorRef& tensor) {
  int longest = 0;
  for (int d = 0; d < tensor.dim(); ++d) {
    if (tensor.sizes()[d] >= 16) return d;
    if (tensor.sizes()[d] > tensor.sizes()[longest]) longest = d;
  }
  return longest;
}

at::Tensor alias_rows(const TensorRef& operand, int leading, std::int64_t begin,
                      std::int64_t length) {
  TensorView part = operand.view();
  const c10::IntArrayRef rest = part.sizes.slice(leading);
  c10::SmallVector<std::int64_t, 8> sizes{length};
  sizes.append(rest.begin(), rest.end());
  c10::SmallVector<std::int64_t, 8> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(d == 0 ? 1 : sizes[d], 1);
  }
  part.data += begin * strides[0] * static_cast<std::int64_t>(operand.itemsize());
  part.sizes = sizes;
  part.strides = strides;
  return make_alias(part);
}

std::int64_t length_of(std::int64_t items, double cost, double block_cost) noexcept {
  const double by_cost = std::max(1.0, std::ceil(block_cost / std::max(cost, 1e-9)));
  const std::int64_t by_count = ceil_div(items, kMaxBlocks);
  if (by_cost >= static_cast<double>(items)) return std::max<std::int64_t>(items, 1);
  const std::int64_t longest = std::max(static_cast<std::int64_t>(by_cost), by_count);
  const std::int64_t blocks = ceil_div(items, longest);
  return ceil_div(items, blocks);  // of about the same length, with no short one at the end
}

}  // namespace

std::int64_t block_length(std::int64_t items, double cost) noexcept {
  return length_of(items, cost, kBlockCost);
}

std::int64_t call_length(std::int64_t items, double cost) noexcept {
  const double total = cost * static_cast<double>(items);
  return length_of(items, cost,
                   std::clamp(total / kEnoughCalls, kBlockCost, kLongestCall * kBlockCost));
}

at::Tensor SlicePlan::slice(const TensorRef& operand, int index, std::int64_t begin) const {
  if (!operand.defined()) return {};
  if (modes[index] == kRows)
    return alias_rows(operand, leading, begin, std::min(block, items - begin));
  if (modes[index] == kWhole || operand.immediate() || items <= block) return operand.alias();
  // A flat block has one dimension, and so must have what is broadcast to it.
  if (modes[index] == kFlat && operand.numel() == 1) return operand.alias_flat(0, 1);
  const std::int64_t length = std::min(block, items - begin);
  return modes[index] == kFlat ? operand.alias_flat(begin, length)
                               : operand.alias_slice(modes[index], begin, length);
}

SlicePlan Whole::plan(Operands) const noexcept {
  SlicePlan plan;
  plan.modes.fill(SlicePlan::kWhole);
  return plan;
}

SlicePlan Pointwise::plan(Operands operands) const noexcept {
  SlicePlan plan = Whole{}.plan(operands);
  const TensorRef& first = *operands[0];
  if (first.immediate() || first.numel() == 0 ||
      block_length(first.numel(), cost) >= first.numel() || overlap_themselves(operands)) {
    return plan;
  }
  if (all_flat(operands)) {
    plan.items = first.numel();
    // Whole cache lines, so that two cores never write the same one.
    plan.block = (call_length(plan.items, cost) + 63) / 64 * 64;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      // Zero-dimensional operands stay what they are: type promotion looks at it.
      plan.modes[i] = operands[i]->dim() == 0 ? SlicePlan::kWhole : SlicePlan::kFlat;
    }
    return plan;
  }
  const int cut = widest_dim(first);
  plan.items = first.sizes()[cut];
  plan.block = call_length(
      plan.items, cost * static_cast<double>(first.numel()) / static_cast<double>(plan.items));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const TensorRef& operand = *operands[i];
    const std::int64_t dim = cut - (first.dim() - operand.dim());  // shapes align at the right
    const bool cuts =
        operand.defined() && !operand.immediate() && dim >= 0 && operand.sizes()[dim] == plan.items;
    plan.modes[i] = cuts ? static_cast<std::int8_t>(dim) : SlicePlan::kWhole;
  }
  return plan;
}

SlicePlan Along::plan(Operands operands) const noexcept {
  SlicePlan plan;
  plan.modes.fill(SlicePlan::kWhole);
  bool first = true;  // the result: what it is made from may be longer
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (dims[i] == SlicePlan::kWhole || !operands[i]->defined()) continue;
    if (first) plan.items = operands[i]->sizes()[dims[i]];
    plan.modes[i] = dims[i];
    first = false;
  }
  if (overlap_themselves(operands)) {
    plan.block = plan.items;
    return plan;
  }
  plan.block = block != 0 ? block : call_length(plan.items, cost);
  return plan;
}

SlicePlan Rows::plan(Operands operands) const noexcept {
  SlicePlan plan = Whole{}.plan(operands);
  plan.leading = leading;
  bool first = true;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if ((cut >> i & 1) == 0 || !operands[i]->defined()) continue;
    plan.modes[i] = SlicePlan::kRows;
    if (!first) continue;
    plan.items = c10::multiply_integers(operands[i]->sizes().slice(0, leading));
    first = false;
  }
  plan.block = block_length(plan.items, cost);
  plan.by = by;
  return plan;
}

}  // namespace loom::ops
