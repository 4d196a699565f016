// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/all_elements.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/gemm/inner_product.h"
#include "loom/kernels/norm/extrema.h"
#include "loom/kernels/norm/moments.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace loom::ops {
namespace {

using kernels::norm::Moments;

// Of an element, in the unit of Pointwise: these loops are as fast as the second-level cache, and
// a variance goes through a block twice.
constexpr double kSumCost = 0.5, kVarianceCost = 1;

bool is_known(const at::Tensor& input) {
  return is_row_element(input.scalar_type()) && input.numel() > 0 &&
         input.is_non_overlapping_and_dense();
}

bool is_known(const at::Tensor& result, const at::Tensor& input) {
  return result.scalar_type() == input.scalar_type() || result.scalar_type() == c10::kFloat;
}

/// body(elements, count) of each block, in the order of the blocks.
template <class T, class Body>
auto parts_of(Grid& grid, const TensorRef& input, double cost, Body body) {
  const auto* const elements = reinterpret_cast<const T*>(input.data());
  const std::int64_t count = input.numel(), block = block_length(count, cost);
  std::vector<decltype(body(elements, count))> parts(
      static_cast<std::size_t>(ceil_div(count, block)));
  grid.run_by_any(static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
    const std::int64_t begin = index * block;
    parts[static_cast<std::size_t>(index)] = body(elements + begin, std::min(block, count - begin));
  });
  return parts;
}

void sum_all(Grid& grid, const TensorRef& result, const TensorRef& input, SumOfAll kind) {
  const auto sums = with_row_element(input.dtype(), [&]<class T>() {
    return parts_of<T>(grid, input, kSumCost, [&](const T* from, std::int64_t count) {
      return kernels::norm::total(from, count, kind == SumOfAll::kOfNumbers);
    });
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  // ATen divides a float, which is infinite if the sum is out of its range.
  const bool divides = kind == SumOfAll::kMean && std::isfinite(static_cast<float>(sum));
  row_numbers(result).write(0, divides ? sum / static_cast<double>(input.numel()) : sum);
}

struct Extrema {
  float least = 0, most = 0;
};

void extrema_of_all(Grid& grid, const TensorRef& least, const TensorRef& most,
                    const TensorRef& input) {
  const auto parts = with_row_element(input.dtype(), [&]<class T>() {
    return parts_of<T>(grid, input, kSumCost, [](const T* from, std::int64_t count) {
      Extrema part;
      kernels::norm::extrema<T>(from, count, &part.least, &part.most);
      return part;
    });
  });
  Extrema all = parts.front();
  for (const Extrema& part : parts) {
    if (std::isnan(all.least)) break;
    if (!(part.least >= all.least)) all.least = part.least;
    if (!(part.most <= all.most)) all.most = part.most;
  }
  row_numbers(least).write(0, all.least);
  row_numbers(most).write(0, all.most);
}

void variance_of_all(Grid& grid, const TensorRef& variance, const TensorRef& mean,
                     const TensorRef& input, double correction, bool root) {
  const auto parts = with_row_element(input.dtype(), [&]<class T>() {
    return parts_of<T>(grid, input, kVarianceCost, kernels::norm::moments<T>);
  });
  Moments all;
  for (const Moments& part : parts) all = merged(all, part);
  const double squares = all.squares / (all.count - correction);
  row_numbers(variance).write(0, root ? std::sqrt(squares) : squares);
  row_numbers(mean).write(0, all.mean);
}

void norm_of_all(Grid& grid, const TensorRef& result, const TensorRef& input) {
  const auto parts = with_row_element(input.dtype(), [&]<class T>() {
    return parts_of<T>(grid, input, kSumCost, [](const T* from, std::int64_t count) {
      return kernels::gemm::inner_product<T>(from, from, count);
    });
  });
  double squares = 0;
  for (const double part : parts) squares += part;
  row_numbers(result).write(0, std::sqrt(squares));
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

bool launch_norm_of_all(const char* name, const at::Tensor& result, const at::Tensor& input) {
  if (!is_known(input) || !is_known(result, input) || input.is_neg()) return false;
  launch(name, Custom{}, norm_of_all, out(result), input);
  return true;
}

}  // namespace loom::ops
