// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/all_elements.h"

#include "loom/ops/launch.h"
#include "loom/ops/rows/row_kernels.h"
#include "loom/ops/rows/row_scratch.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace loom::ops {
namespace {

// Of an element, in the unit of Pointwise: these loops are as fast as the second-level cache, and
// a variance goes through a block twice.
constexpr double kSumCost = 0.5, kVarianceCost = 1;

// Where squares are less than this on average, float may have lost digits of them or flushed them
// to zero: its least normal number is 1.2e-38, and a millionth of the square that counts is enough.
constexpr double kLeastSquare = 1e-30;

struct Moments {
  double count = 0, mean = 0, squares = 0;  ///< of the distances from the mean
};

/// Both together, by the formula of Chan et al. An infinite mean of `a` makes it NaN, as in ATen.
Moments merged(const Moments& a, const Moments& b) {
  if (a.count == 0) return b;
  const double distance = b.mean - a.mean;
  const double count = a.count + b.count;
  return {count, a.mean + distance * (b.count / count),
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}

/// body(element) of all, in their order: for what is out of the range of sums in float.
template <class Body>
void for_doubles(c10::ScalarType dtype, const void* elements, std::int64_t count, Body body) {
  const RowKernels& kernels = row_kernels(*row_element(dtype));
  constexpr std::int64_t kRoom = 1024;
  std::array<float, kRoom> room;
  const auto* next = static_cast<const std::byte*>(elements);
  for (std::int64_t done = 0; done < count; done += kRoom) {
    const std::int64_t length = std::min(kRoom, count - done);
    kernels.to_float(room.data(), next, length);
    for (std::int64_t i = 0; i < length; ++i) {
      body(static_cast<double>(room[static_cast<std::size_t>(i)]));
    }
    next += static_cast<std::size_t>(length) * c10::elementSize(dtype);
  }
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

double sum_of_part(c10::ScalarType dtype, const void* from, std::int64_t count, SumOfAll kind) {
  const RowKernels& kernels = row_kernels(*row_element(dtype));
  const bool of_numbers = kind == SumOfAll::kOfNumbers;
  const double sum =
      of_numbers ? kernels.sum_of_numbers(from, count) : kernels.sum(from, 1, 0, count);
  if (std::isfinite(sum)) return sum;
  double wide = 0;  // sums in float may be out of its range although the whole is not
  for_doubles(dtype, from, count,
              [&](double value) { wide += of_numbers && std::isnan(value) ? 0 : value; });
  return wide;
}

void sum_all(Grid& grid, const TensorRef& result, const TensorRef& input, SumOfAll kind) {
  const auto sums =
      parts_of<double>(grid, input, kSumCost, [&](const void* from, std::int64_t count) {
        return sum_of_part(input.dtype(), from, count, kind);
      });
  double sum = 0;
  for (const double part : sums) sum += part;
  // ATen divides a float, which is infinite if the sum is out of its range.
  const bool divides = kind == SumOfAll::kMean && std::isfinite(static_cast<float>(sum));
  store(result, divides ? sum / static_cast<double>(input.numel()) : sum);
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

/// By Welford's steps in double, which also have ATen's means where an element is infinite.
Moments wide_moments(c10::ScalarType dtype, const void* from, std::int64_t count) {
  Moments part;
  float least = 0, most = 0;
  row_kernels(*row_element(dtype)).extrema(from, count, &least, &most);
  if (std::isnan(least) || (least == most && std::isfinite(least))) {
    const auto value = static_cast<double>(least);
    return {static_cast<double>(count), value, value - value};
  }
  for_doubles(dtype, from, count, [&](double value) {
    part.count += 1;
    const double distance = value - part.mean;
    part.mean += distance / part.count;
    part.squares += distance * (value - part.mean);
  });
  return part;
}

Moments moments(c10::ScalarType dtype, const void* from, std::int64_t count) {
  const RowKernels& kernels = row_kernels(*row_element(dtype));
  Moments part{.count = static_cast<double>(count)};
  part.mean = kernels.sum(from, 1, 0, count) / part.count;
  // Distances are from the mean as a float, which is a little beside it.
  const auto shift = static_cast<float>(part.mean);
  const double beside = part.mean - static_cast<double>(shift);
  const double squares = kernels.square_sum(from, 1, 0, count, shift);
  if (!std::isfinite(squares) || squares < kLeastSquare * part.count) {
    return wide_moments(dtype, from, count);
  }
  part.squares = std::max(squares - part.count * beside * beside, 0.0);
  return part;
}

void variance_of_all(Grid& grid, const TensorRef& variance, const TensorRef& mean,
                     const TensorRef& input, double correction, bool root) {
  const auto parts = parts_of<Moments>(
      grid, input, kVarianceCost,
      [&](const void* from, std::int64_t count) { return moments(input.dtype(), from, count); });
  Moments all;
  for (const Moments& part : parts) all = merged(all, part);
  const double squares = all.squares / (all.count - correction);
  store(variance, root ? std::sqrt(squares) : squares);
  store(mean, all.mean);
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
