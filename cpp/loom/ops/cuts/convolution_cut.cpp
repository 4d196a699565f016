// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/cuts/convolution_cut.h"

#include "loom/base/ceil_div.h"

#include <bit>

namespace loom::ops {
namespace {

// One multiply-add, in the unit of Pointwise's cost; of bfloat16 half as much.
constexpr double kFlopPairCost = 0.1;
// An element of the input or the result at the least, whatever few products it is in: ATen's
// kernels for few channels took 10 and more (transposed convolutions in two groups of two
// channels).
constexpr double kElementCost = 4;
// Reordering an element, in the same unit.
constexpr double kReorderCost = 2;
// Setting up a primitive and its memory takes up to 100 us: a block should be worth several times
// that, and a block below the second figure is not worth handing to another core.
constexpr double kBlockCost = 6'000'000;
constexpr double kLeastBlockCost = 500'000;
// What the blocks but the first do again should be less than this part of the work.
constexpr double kMostAgain = 0.1;
// A parameter's gradient is reordered, stored and added up in each part; what is copied is once.
constexpr double kAddedCost = 3;
constexpr std::int64_t kFewestChannels = 16;
constexpr std::int64_t kMostBlocks = 64;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMostGradientParts = 8;

double numel(const at::Tensor& tensor) { return static_cast<double>(tensor.numel()); }

double work(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
            bool transposed) {
  // Every element of the side that has the weight's first channels meets one filter.
  const at::Tensor& side = transposed ? input : output;
  const double cost = output.scalar_type() == c10::kBFloat16 ? kFlopPairCost / 2 : kFlopPairCost;
  const double products = cost * numel(side) * numel(weight) /
                          static_cast<double>(std::max<std::int64_t>(weight.size(0), 1));
  return std::max(products, kElementCost * (numel(input) + numel(output)));
}

// How many blocks suit `cost` if each but the first does `again` more.
std::int64_t count_blocks(double cost, double again, std::int64_t most) {
  if (cost < 2 * kLeastBlockCost) return 1;
  const double wanted = std::min(std::max(cost / kBlockCost, 2.0), 1 + kMostAgain * cost / again);
  const auto count = std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1,
                                              std::max<std::int64_t>(most, 1));
  // A power of two, as the number of cores mostly is: blocks are few, and an odd one costs.
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
}

// Blocks of as many groups each, if that goes: of five groups two blocks.
std::int64_t count_groups(double cost, std::int64_t groups) {
  std::int64_t count = count_blocks(cost, 1, std::min(groups, kMostBlocks));
  while (count > 2 && groups % count != 0) count /= 2;
  return count;
}

ConvolutionCut cut(std::int64_t batch, std::int64_t samples, std::int64_t channels,
                   std::int64_t slices, std::int64_t unit = kFewestChannels) {
  // Two blocks of the batch keep two cores busy as well as four of channels: ties go to it.
  if (samples >= slices) {
    batch = std::max<std::int64_t>(batch, 1);
    return {batch, ceil_div(batch, samples), false};
  }
  const std::int64_t block = ceil_div(channels, slices);
  return {channels, round_up(block, unit), true};
}

}  // namespace

ConvolutionCut cut_forward(const at::Tensor& output, const at::Tensor& input,
                           const at::Tensor& weight, bool transposed, std::int64_t groups) {
  const double cost = work(output, input, weight, transposed);
  const std::int64_t batch = output.size(0), channels = output.size(1);
  const std::int64_t samples =
      count_blocks(cost, kReorderCost * numel(weight), std::min(batch, kMostBlocks));
  if (groups != 1) {
    // Groups have nothing in common that would be reordered again.
    const std::int64_t some = count_groups(cost, groups);
    return cut(batch, samples, channels, some, channels / groups);
  }
  const std::int64_t slices = count_blocks(cost, kReorderCost * numel(input),
                                           std::min(channels / kFewestChannels, kMostBlocks));
  return cut(batch, samples, channels, slices);
}

ConvolutionCut cut_backward(const at::Tensor& grad, const at::Tensor& input,
                            const at::Tensor& weight, bool transposed, std::int64_t groups,
                            bool with_parameters) {
  const double cost = 2 * work(grad, input, weight, transposed);
  const std::int64_t batch = grad.size(0), channels = input.size(1);
  // Weights are reordered, and their gradients reordered and added up.
  const std::int64_t samples =
      count_blocks(cost, (with_parameters ? 3 : 1) * kReorderCost * numel(weight),
                   std::min(batch, with_parameters ? kMostGradientParts : kMostBlocks));
  if (groups != 1) {
    // Gradients of parameters have nothing to add up, but channels of several images are copied.
    const std::int64_t some = count_groups(cost, groups);
    const double added = kAddedCost * static_cast<double>(samples) * numel(weight);
    const double copied = batch > 1 ? numel(grad) + numel(input) : 0;
    const bool by_batch = with_parameters && (some == 1 || (samples > 1 && added <= copied));
    return cut(batch, with_parameters && !by_batch ? 0 : samples, channels, by_batch ? 1 : some,
               channels / groups);
  }
  const std::int64_t slices = count_blocks(cost, 2 * kReorderCost * numel(grad),
                                           std::min(channels / kFewestChannels, kMostBlocks));
  return cut(batch, samples, channels, slices);
}

}  // namespace loom::ops
