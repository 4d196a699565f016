// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/layer_norm.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/norm/layer_norm.h"
#include "loom/kernels/norm/sums.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"
#include "loom/ops/recipes/rows/turned_norm.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

namespace loom::ops {
namespace {

using kernels::norm::kTurnedRows;
using kernels::norm::Numbers;

constexpr double kElementCost = 1;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMaxGradientParts = 16;

bool all_have_elements(const at::Tensor& input, std::initializer_list<at::Tensor> others) {
  return is_row_element(input.scalar_type()) &&
         std::all_of(others.begin(), others.end(),
                     [&](const at::Tensor& other) { return goes_with_rows(other, input); });
}

struct RowRange {
  std::int64_t begin, end;
};

/// Blocks of rows: their number follows from the shape alone.
struct RowBlocks {
  std::int64_t rows, columns, block;

  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(rows, block); }
  [[nodiscard]] RowRange at(std::int64_t index) const noexcept {
    return {index * block, std::min(rows, (index + 1) * block)};
  }
};

template <class T>
void normalise(Grid& grid, const at::Tensor& to, const Numbers& to_mean, const Numbers& to_rstd,
               const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
               RowBlocks blocks, double eps) {
  const T* const from = row_elements<T>(input);
  const auto layer_norm = kernels::norm::layer_norm_row<T>.of(simd_level());
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const std::int64_t columns = blocks.columns, pitch = row_pitch(columns);
    const bool turns = columns <= kLongestTurnedRow;
    float* const scratch = row_scratch(columns, turns ? 4 + static_cast<int>(kTurnedRows) : 4);
    const float* const factors = row_parameter(weight, 1, scratch + pitch, columns);
    const float* const terms = row_parameter(bias, 0, scratch + 2 * pitch, columns);
    const RowOutput<T> rows(to, columns, scratch + 3 * pitch, to.nbytes());
    const RowRange range = blocks.at(index);
    if (turns) {
      auto* const room = reinterpret_cast<T*>(scratch + 4 * pitch);
      return normalise_short_rows<T>(static_cast<T*>(to.mutable_data_ptr()), from, range.begin,
                                     range.end, columns, factors, terms, eps, to_mean, to_rstd,
                                     room);
    }
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      float statistics[2];
      layer_norm(rows.row(row), from + row * columns, factors, terms, scratch, columns, eps,
                 statistics);
      rows.done(row);
      to_mean.write(row, statistics[0]);
      to_rstd.write(row, statistics[1]);
    }
  });
}

void start(Grid& grid, const TensorRef& output, const TensorRef& mean, const TensorRef& rstd,
           const TensorRef& input, const TensorRef& weight, const TensorRef& bias, RowBlocks blocks,
           double eps) {
  with_row_element(input.dtype(), [&]<class T>() {
    normalise<T>(grid, output.alias(), row_numbers(mean), row_numbers(rstd), input.alias(),
                 weight.alias(), bias.alias(), blocks, eps);
  });
}

/// Sums of the parts of a parameter's gradient, in their order.
void add_up(const std::vector<float>& parts, std::int64_t columns, const TensorRef& gradient) {
  if (!gradient.defined()) return;
  std::vector<float> sums(static_cast<std::size_t>(columns));
  kernels::norm::add_rows<float>(parts.data(), static_cast<std::int64_t>(parts.size()) / columns,
                                 columns, sums.data(), columns);
  with_row_element(gradient.dtype(), [&]<class T>() {
    kernels::round_row<T>(reinterpret_cast<T*>(gradient.data()), sums.data(), columns);
  });
}

/// Gradients of the input, which is undefined if nobody wants it, and the blocks' parts of those of
/// the parameters.
template <class T>
void gradients(Grid& grid, const at::Tensor& to, const at::Tensor& grad, const at::Tensor& input,
               const Numbers& means, const Numbers& rstds, const at::Tensor& weight,
               RowBlocks blocks, std::vector<float>& weights, std::vector<float>& biases) {
  const std::int64_t columns = blocks.columns;
  const T *const from = row_elements<T>(grad), *const values = row_elements<T>(input);
  const auto gradient = kernels::norm::layer_norm_gradient_row<T>.of(simd_level());
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    float* const scratch = row_scratch(columns, 2);
    const float* const factors = row_parameter(weight, 1, scratch, columns);
    std::optional<RowOutput<T>> rows;
    if (to.defined()) rows.emplace(to, columns, scratch + row_pitch(columns), to.nbytes());
    float* const weight_part = weights.empty() ? nullptr : weights.data() + index * columns;
    float* const bias_part = biases.empty() ? nullptr : biases.data() + index * columns;
    const RowRange range = blocks.at(index);
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      const float statistics[] = {means.read(row, 0), rstds.read(row, 1)};
      gradient(rows ? rows->row(row) : nullptr, from + row * columns, values + row * columns,
               factors, columns, statistics, weight_part, bias_part);
      if (rows) rows->done(row);
    }
  });
}

void start_gradients(Grid& grid, const TensorRef& to_input, const TensorRef& to_weight,
                     const TensorRef& to_bias, const TensorRef& grad, const TensorRef& input,
                     const TensorRef& mean, const TensorRef& rstd, const TensorRef& weight,
                     RowBlocks blocks) {
  const bool parameters = to_weight.defined() || to_bias.defined();
  const auto room = static_cast<std::size_t>(parameters ? blocks.count() * blocks.columns : 0);
  std::vector<float> weights(room), biases(room);
  with_row_element(input.dtype(), [&]<class T>() {
    gradients<T>(grid, to_input.alias(), grad.alias(), input.alias(), row_numbers(mean),
                 row_numbers(rstd), weight.alias(), blocks, weights, biases);
  });
  add_up(weights, blocks.columns, to_weight);
  add_up(biases, blocks.columns, to_bias);
}

}  // namespace

bool launch_row_layer_norm(const at::Tensor& output, const at::Tensor& mean, const at::Tensor& rstd,
                           const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, std::int64_t rows, std::int64_t columns,
                           double eps) {
  if (columns == 0 || columns > kMaxRowColumns || !all_have_elements(input, {weight, bias}) ||
      !are_alike({weight, bias})) {
    return false;
  }
  const RowBlocks blocks{rows, columns,
                         block_length(rows, kElementCost * static_cast<double>(columns))};
  launch("native_layer_norm", Custom{}, start, out(output), out(mean), out(rstd), input, weight,
         bias, blocks, eps);
  return true;
}

bool launch_row_layer_norm_gradient(const at::Tensor& to_input, const at::Tensor& to_weight,
                                    const at::Tensor& to_bias, const at::Tensor& grad,
                                    const at::Tensor& input, const at::Tensor& mean,
                                    const at::Tensor& rstd, const at::Tensor& weight,
                                    std::int64_t rows, std::int64_t columns) {
  if (columns == 0 || columns > kMaxRowColumns || grad.scalar_type() != input.scalar_type() ||
      !all_have_elements(input, {weight, mean, rstd, to_weight, to_bias})) {
    return false;
  }
  const std::int64_t fewest = ceil_div(rows, kMaxGradientParts);
  const std::int64_t length = block_length(rows, 2 * kElementCost * static_cast<double>(columns));
  const RowBlocks blocks{rows, columns, std::max(length, fewest)};
  launch_on(input.device(), "native_layer_norm_backward", Custom{}, start_gradients, out(to_input),
            out(to_weight), out(to_bias), grad, input, mean, rstd, weight, blocks);
  return true;
}

}  // namespace loom::ops
