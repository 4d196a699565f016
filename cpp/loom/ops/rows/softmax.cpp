// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/softmax.h"

#include "loom/ops/launch.h"
#include "loom/ops/rows/row_scratch.h"

#include <c10/core/WrapDimMinimal.h>

namespace loom::ops {
namespace {

constexpr double kElementCost = 1.5;

bool takes(const at::Tensor& result, const at::Tensor& input, std::int64_t dim) {
  return input.scalar_type() == result.scalar_type() && input.is_contiguous() &&
         result.is_contiguous() && row_element(result.scalar_type()) && result.dim() > 1 &&
         result.numel() > 0 && result.size(-1) <= kMaxRowColumns &&
         c10::maybe_wrap_dim(dim, result.dim()) == result.dim() - 1;
}

Rows rows_of(const at::Tensor& result, std::uint32_t cut) {
  return {.leading = static_cast<std::int8_t>(result.dim() - 1),
          .cut = cut,
          .cost = kElementCost * static_cast<double>(result.size(-1)),
          .by = RunBy::kAny};
}

}  // namespace

bool launch_row_softmax(const char* name, bool log, const at::Tensor& result,
                        const at::Tensor& self, std::int64_t dim) {
  if (!takes(result, self, dim)) return false;
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, bool logarithm,
                         std::size_t total_bytes) {
    const std::int64_t rows = from.size(0), columns = from.size(1);
    const RowKernels& kernels = row_kernels(*row_element(from.scalar_type()));
    const auto softmax = logarithm ? kernels.log_softmax : kernels.softmax;
    float* const scratch = row_scratch(columns, 2);
    const RowOutput output(to, columns, scratch + row_pitch(columns), total_bytes);
    const auto* in = static_cast<const std::byte*>(from.const_data_ptr());
    for (std::int64_t i = 0; i < rows;
         ++i, in += static_cast<std::size_t>(columns) * from.itemsize()) {
      softmax(output.row(i), in, scratch, columns);
      output.done(i);
    }
  };
  launch(name, rows_of(result, 3), kernel, out(result), self, log, result.nbytes());
  return true;
}

bool launch_row_softmax_gradient(const char* name, bool log, const at::Tensor& result,
                                 const at::Tensor& grad, const at::Tensor& output,
                                 std::int64_t dim) {
  if (!takes(result, grad, dim) || !takes(result, output, dim)) return false;
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, const at::Tensor& result_of,
                         bool logarithm, std::size_t total_bytes) {
    const std::int64_t rows = from.size(0), columns = from.size(1);
    const RowKernels& kernels = row_kernels(*row_element(from.scalar_type()));
    const auto gradient = logarithm ? kernels.log_softmax_gradient : kernels.softmax_gradient;
    const RowOutput written(to, columns, row_scratch(columns, 1), total_bytes);
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * from.itemsize();
    const auto* in = static_cast<const std::byte*>(from.const_data_ptr());
    const auto* values = static_cast<const std::byte*>(result_of.const_data_ptr());
    for (std::int64_t i = 0; i < rows; ++i, in += row_bytes, values += row_bytes) {
      gradient(written.row(i), in, values, columns);
      written.done(i);
    }
  };
  launch(name, rows_of(result, 7), kernel, out(result), grad, output, log, result.nbytes());
  return true;
}

}  // namespace loom::ops
