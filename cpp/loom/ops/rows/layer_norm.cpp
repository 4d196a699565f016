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

/// A vector of floats of either dtype, looked at once for many elements.
class Numbers {
 public:
  explicit Numbers(const at::Tensor& tensor)
      : floats_(tensor.scalar_type() == c10::kFloat ? tensor.mutable_data_ptr<float>() : nullptr),
        halves_(floats_ == nullptr ? tensor.mutable_data_ptr<c10::BFloat16>() : nullptr) {}

  [[nodiscard]] float operator[](std::int64_t index) const {
    return floats_ != nullptr ? floats_[index] : static_cast<float>(halves_[index]);
  }
  void set(std::int64_t index, float value) const {
    if (floats_ != nullptr) {
      floats_[index] = value;
    } else {
      halves_[index] = value;
    }
  }

 private:
  float* floats_;
  c10::BFloat16* halves_;
};

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

/// Rows that are read.
class RowInput {
 public:
  RowInput(const at::Tensor& from, std::int64_t columns)
      : data_(static_cast<const std::byte*>(from.const_data_ptr())),
        row_bytes_(static_cast<std::size_t>(columns) * from.itemsize()) {}
  [[nodiscard]] const std::byte* row(std::int64_t index) const noexcept {
    return data_ + static_cast<std::size_t>(index) * row_bytes_;
  }

 private:
  const std::byte* data_;
  std::size_t row_bytes_;
};

void normalise(Grid& grid, const TensorRef& output, const TensorRef& mean, const TensorRef& rstd,
               const TensorRef& input, const TensorRef& weight, const TensorRef& bias,
               RowBlocks blocks, double eps) {
  const at::Tensor to = output.alias(), in = input.alias();
  const at::Tensor means = mean.alias(), rstds = rstd.alias();
  const at::Tensor scale = weight.alias(), shift = bias.alias();
  const Numbers to_mean(means), to_rstd(rstds);
  const RowInput from(in, blocks.columns);
  const RowKernels& kernels = row_kernels(*row_element(in.scalar_type()));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    const std::int64_t columns = blocks.columns, pitch = row_pitch(columns);
    float* const scratch = row_scratch(columns, 4);
    const float* const factors = row_parameter(scale, 1, scratch + pitch, columns);
    const float* const terms = row_parameter(shift, 0, scratch + 2 * pitch, columns);
    const RowOutput rows(to, columns, scratch + 3 * pitch, to.nbytes());
    const Range range = blocks.at(index);
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      float statistics[2];
      kernels.layer_norm(rows.row(row), from.row(row), factors, terms, scratch, columns, eps,
                         statistics);
      rows.done(row);
      to_mean.set(row, statistics[0]);
      to_rstd.set(row, statistics[1]);
    }
  });
}

/// Sums of the parts of a parameter's gradient, in their order.
void add_up(const std::vector<float>& parts, std::int64_t columns, const TensorRef& gradient) {
  if (!gradient.defined()) return;
  const at::Tensor alias = gradient.alias();
  const Numbers to(alias);
  for (std::int64_t i = 0; i < columns; ++i) {
    float sum = 0;
    for (std::size_t at = static_cast<std::size_t>(i); at < parts.size();
         at += static_cast<std::size_t>(columns)) {
      sum += parts[at];
    }
    to.set(i, sum);
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
  const at::Tensor to = to_input.alias(), slopes = grad.alias(), in = input.alias();
  const at::Tensor of_mean = mean.alias(), of_rstd = rstd.alias(), scale = weight.alias();
  const Numbers means(of_mean), rstds(of_rstd);
  const RowInput from(slopes, columns), values(in, columns);
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
      const float statistics[] = {means[row], rstds[row]};
      kernels.layer_norm_gradient(rows ? rows->row(row) : nullptr, from.row(row), values.row(row),
                                  factors, columns, statistics, weight_part, bias_part);
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
