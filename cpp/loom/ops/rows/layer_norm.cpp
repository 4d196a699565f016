// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/layer_norm.h"

#include "loom/ops/launch.h"
#include "loom/ops/rows/row_scratch.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

constexpr double kElementCost = 1;
// Each part of a parameter's gradient is as large as the parameter.
constexpr std::int64_t kMaxGradientParts = 16;

bool has_element(const at::Tensor& tensor) {
  return !tensor.defined() || row_element(tensor.scalar_type()).has_value();
}

float read(const at::Tensor& statistic, std::int64_t index) {
  if (statistic.scalar_type() == c10::kFloat) return statistic.const_data_ptr<float>()[index];
  return statistic.const_data_ptr<c10::BFloat16>()[index];
}

void write(const at::Tensor& statistic, std::int64_t index, float value) {
  if (statistic.scalar_type() == c10::kFloat) {
    statistic.mutable_data_ptr<float>()[index] = value;
  } else {
    statistic.mutable_data_ptr<c10::BFloat16>()[index] = value;
  }
}

struct Range {
  std::int64_t begin, end;
};

/// Blocks of rows: their number follows from the shape alone.
struct RowBlocks {
  std::int64_t rows, columns, block;

  [[nodiscard]] std::int64_t count() const noexcept { return (rows + block - 1) / block; }
  [[nodiscard]] Range at(std::int64_t index) const noexcept {
    return {index * block, std::min(rows, (index + 1) * block)};
  }
};

const std::byte* row_of(const at::Tensor& tensor, std::int64_t row, std::int64_t columns) {
  return static_cast<const std::byte*>(tensor.const_data_ptr()) +
         static_cast<std::size_t>(row * columns) * tensor.itemsize();
}

void normalise(Grid& grid, const TensorRef& output, const TensorRef& mean, const TensorRef& rstd,
               const TensorRef& input, const TensorRef& weight, const TensorRef& bias,
               RowBlocks blocks, double eps) {
  const at::Tensor to = output.alias(), to_mean = mean.alias(), to_rstd = rstd.alias();
  const at::Tensor from = input.alias(), scale = weight.alias(), shift = bias.alias();
  const RowKernels& kernels = row_kernels(*row_element(from.scalar_type()));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const std::int64_t columns = blocks.columns, pitch = row_pitch(columns);
    float* const scratch = row_scratch(columns, 4);
    const float* const factors = row_parameter(scale, 1, scratch + pitch, columns);
    const float* const terms = row_parameter(shift, 0, scratch + 2 * pitch, columns);
    const RowOutput rows(to, columns, scratch + 3 * pitch, to.nbytes());
    const Range range = blocks.at(index);
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      float statistics[2];
      kernels.layer_norm(rows.row(row), row_of(from, row, columns), factors, terms, scratch,
                         columns, eps, statistics);
      rows.done(row);
      write(to_mean, row, statistics[0]);
      write(to_rstd, row, statistics[1]);
    }
  });
}

/// Sums of the parts of a parameter's gradient, in their order.
void add_up(const std::vector<float>& parts, std::int64_t columns, const TensorRef& gradient) {
  if (!gradient.defined()) return;
  const at::Tensor to = gradient.alias();
  for (std::int64_t i = 0; i < columns; ++i) {
    float sum = 0;
    for (std::size_t at = static_cast<std::size_t>(i); at < parts.size();
         at += static_cast<std::size_t>(columns)) {
      sum += parts[at];
    }
    write(to, i, sum);
  }
}

void gradients(Grid& grid, const TensorRef& to_input, const TensorRef& to_weight,
               const TensorRef& to_bias, const TensorRef& grad, const TensorRef& input,
               const TensorRef& mean, const TensorRef& rstd, const TensorRef& weight,
               RowBlocks blocks) {
  const std::int64_t columns = blocks.columns;
  const auto room = static_cast<std::size_t>(blocks.count() * columns);
  const bool parameters = to_weight.defined() || to_bias.defined();
  std::vector<float> weights(parameters ? room : 0), biases(parameters ? room : 0);
  const at::Tensor to = to_input.alias(), from = grad.alias(), in = input.alias();
  const at::Tensor means = mean.alias(), rstds = rstd.alias(), scale = weight.alias();
  const RowKernels& kernels = row_kernels(*row_element(in.scalar_type()));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    float* const scratch = row_scratch(columns, 2);
    const float* const factors = row_parameter(scale, 1, scratch, columns);
    std::optional<RowOutput> rows;
    if (to.defined()) rows.emplace(to, columns, scratch + row_pitch(columns), to.nbytes());
    float* const weight_part = !parameters ? nullptr : weights.data() + index * columns;
    float* const bias_part = !parameters ? nullptr : biases.data() + index * columns;
    const Range range = blocks.at(index);
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      const float statistics[] = {read(means, row), read(rstds, row)};
      kernels.layer_norm_gradient(rows ? rows->row(row) : nullptr, row_of(from, row, columns),
                                  row_of(in, row, columns), factors, columns, statistics,
                                  weight_part, bias_part);
      if (rows) rows->done(row);
    }
  });
  add_up(weights, columns, to_weight);
  add_up(biases, columns, to_bias);
}

}  // namespace

bool launch_row_layer_norm(const at::Tensor& output, const at::Tensor& mean, const at::Tensor& rstd,
                           const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, std::int64_t rows, std::int64_t columns,
                           double eps) {
  if (columns == 0 || columns > kMaxRowColumns || !row_element(input.scalar_type()) ||
      !has_element(weight) || !has_element(bias)) {
    return false;
  }
  const RowBlocks blocks{rows, columns,
                         block_length(rows, kElementCost * static_cast<double>(columns))};
  launch("native_layer_norm", Custom{}, normalise, out(output), out(mean), out(rstd), input, weight,
         bias, blocks, eps);
  return true;
}

bool launch_row_layer_norm_gradient(const at::Tensor& to_input, const at::Tensor& to_weight,
                                    const at::Tensor& to_bias, const at::Tensor& grad,
                                    const at::Tensor& input, const at::Tensor& mean,
                                    const at::Tensor& rstd, const at::Tensor& weight,
                                    std::int64_t rows, std::int64_t columns) {
  if (columns == 0 || columns > kMaxRowColumns || !row_element(input.scalar_type()) ||
      grad.scalar_type() != input.scalar_type() || !has_element(weight) || !has_element(mean) ||
      !has_element(to_weight) || !has_element(to_bias)) {
    return false;
  }
  const std::int64_t fewest = (rows + kMaxGradientParts - 1) / kMaxGradientParts;
  const std::int64_t length = block_length(rows, 2 * kElementCost * static_cast<double>(columns));
  const RowBlocks blocks{rows, columns, std::max(length, fewest)};
  launch_on(input.device(), "native_layer_norm_backward", Custom{}, gradients, out(to_input),
            out(to_weight), out(to_bias), grad, input, mean, rstd, weight, blocks);
  return true;
}

}  // namespace loom::ops
