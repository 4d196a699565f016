// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/all_elements.h"

#include "loom/ops/launch.h"
#include "loom/ops/rows/row_kernels.h"
#include "loom/ops/rows/row_scratch.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace loom::ops {
namespace {

// Of an element, in the unit of Pointwise: these loops are as fast as the second-level cache, and
// a variance goes through a block twice.
constexpr double kSumCost = 0.5, kVarianceCost = 1;

struct Moments {
  double count = 0, sum = 0, squares = 0;  ///< of the distances from the mean
};

/// Both together, by the formula of Chan et al.
Moments merged(const Moments& a, const Moments& b) {
  if (a.count == 0) return b;
  const double distance = b.sum / b.count - a.sum / a.count;
  const double count = a.count + b.count;
  return {count, a.sum + b.sum,
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}

bool is_known(const at::Tensor& input) {
  return row_element(input.scalar_type()).has_value() && input.numel() > 0 &&
         input.is_non_overlapping_and_dense();
}

bool is_known(const at::Tensor& result, const at::Tensor& input) {
  return result.scalar_type() == input.scalar_type() || result.scalar_type() == c10::kFloat;
}

void store(const TensorRef& result, double value) {
  if (!result.defined()) return;
  const at::Tensor to = result.alias();
  const auto rounded = static_cast<float>(value);
  if (to.scalar_type() == c10::kFloat) {
    *to.mutable_data_ptr<float>() = rounded;
  } else {
    *to.mutable_data_ptr<c10::BFloat16>() = rounded;
  }
}

/// body(elements, count) of each block, in the order of the blocks.
template <class Part, class Body>
std::vector<Part> parts_of(Grid& grid, const TensorRef& input, double cost, Body body) {
  const at::Tensor from = input.alias();
  const auto* const elements = static_cast<const std::byte*>(from.const_data_ptr());
  const std::int64_t count = from.numel(), block = block_length(count, cost);
  std::vector<Part> parts(static_cast<std::size_t>((count + block - 1) / block));
  grid.run_by_any(static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
    const std::int64_t begin = index * block;
    parts[static_cast<std::size_t>(index)] =
        body(elements + static_cast<std::size_t>(begin) * from.itemsize(),
             std::min(block, count - begin));
  });
  return parts;
}

void sum_all(Grid& grid, const TensorRef& result, const TensorRef& input, SumOfAll kind) {
  const RowKernels& kernels = row_kernels(*row_element(input.dtype()));
  const auto sums =
      parts_of<double>(grid, input, kSumCost, [&](const void* from, std::int64_t count) {
        return kind == SumOfAll::kOfNumbers ? kernels.sum_of_numbers(from, count)
                                            : kernels.sum(from, 1, 0, count);
      });
  double sum = 0;
  for (const double part : sums) sum += part;
  store(result, kind == SumOfAll::kMean ? sum / static_cast<double>(input.numel()) : sum);
}

struct Extrema {
  float least = 0, most = 0;
};

void extrema_of_all(Grid& grid, const TensorRef& least, const TensorRef& most,
                    const TensorRef& input) {
  const RowKernels& kernels = row_kernels(*row_element(input.dtype()));
  const auto parts =
      parts_of<Extrema>(grid, input, kSumCost, [&](const void* from, std::int64_t count) {
        Extrema part;
        kernels.extrema(from, count, &part.least, &part.most);
        return part;
      });
  Extrema all = parts.front();
  for (const Extrema& part : parts) {
    if (std::isnan(all.least)) break;
    if (!(part.least >= all.least)) all.least = part.least;
    if (!(part.most <= all.most)) all.most = part.most;
  }
  store(least, all.least);
  store(most, all.most);
}

void variance_of_all(Grid& grid, const TensorRef& variance, const TensorRef& mean,
                     const TensorRef& input, double correction, bool root) {
  const RowKernels& kernels = row_kernels(*row_element(input.dtype()));
  const auto parts =
      parts_of<Moments>(grid, input, kVarianceCost, [&](const void* from, std::int64_t length) {
        Moments part{static_cast<double>(length), kernels.sum(from, 1, 0, length)};
        // Distances are from the mean as a float, which is a little beside it.
        const double centre = part.sum / part.count;
        const auto shift = static_cast<float>(centre);
        const double beside = centre - static_cast<double>(shift);
        part.squares = kernels.square_sum(from, 1, 0, length, shift) - part.count * beside * beside;
        if (part.squares < 0) part.squares = 0;  // not if it is not a number
        return part;
      });
  Moments all;
  for (const Moments& part : parts) all = merged(all, part);
  const double squares = all.squares / (all.count - correction);
  store(variance, root ? std::sqrt(squares) : squares);
  store(mean, all.sum / all.count);
}

}  // namespace

bool launch_sum_of_all(const char* name, const at::Tensor& result, const at::Tensor& input,
                       SumOfAll kind) {
  if (!is_known(input) || !is_known(result, input)) return false;
  launch(name, Custom{}, sum_all, out(result), input, kind);
  return true;
}

bool launch_extrema_of_all(const char* name, const at::Tensor& least, const at::Tensor& most,
                           const at::Tensor& input) {
  if (!is_known(input)) return false;
  launch_on(input.device(), name, Custom{}, extrema_of_all, out(least), out(most), input);
  return true;
}

bool launch_variance_of_all(const char* name, const at::Tensor& variance, const at::Tensor& mean,
                            const at::Tensor& input, double correction, bool root) {
  // Of fewer elements than `correction` ATen has something to say.
  if (!is_known(input) || !is_known(variance, input) ||
      !(correction < static_cast<double>(input.numel()))) {
    return false;
  }
  launch(name, Custom{}, variance_of_all, out(variance), out(mean), input, correction, root);
  return true;
}

}  // namespace loom::ops
