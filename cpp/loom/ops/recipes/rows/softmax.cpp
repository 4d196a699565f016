// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/softmax.h"

#include "loom/kernels/norm/short_rows.h"
#include "loom/kernels/norm/softmax.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <c10/core/WrapDimMinimal.h>

namespace loom::ops {
namespace {

using kernels::norm::kShortRow;
using kernels::norm::log_softmax_gradient_row;
using kernels::norm::log_softmax_row;
using kernels::norm::softmax_gradient_row;
using kernels::norm::softmax_row;
using kernels::norm::softmax_short_rows;

// Of an element, and of what a row of few of them costs besides.
constexpr double kElementCost = 1.5, kRowCost = 8;

bool takes(const at::Tensor& result, const at::Tensor& input, std::int64_t dim) {
  return input.scalar_type() == result.scalar_type() && input.is_contiguous() &&
         result.is_contiguous() && is_row_element(result.scalar_type()) && result.dim() > 1 &&
         result.numel() > 0 && result.size(-1) <= kMaxRowColumns &&
         c10::maybe_wrap_dim(dim, result.dim()) == result.dim() - 1;
}

Rows rows_of(const at::Tensor& result, std::uint32_t cut) {
  return {.leading = static_cast<std::int8_t>(result.dim() - 1),
          .cut = cut,
          .cost = kRowCost + kElementCost * static_cast<double>(result.size(-1)),
          .by = RunBy::kAny};
}

float* short_rows_scratch(std::int64_t columns) {
  return row_scratch(kernels::norm::short_rows_room(columns), 1);
}

template <class T>
void softmax_rows(const at::Tensor& to, const at::Tensor& from, bool logarithm,
                  std::size_t total_bytes) {
  const std::int64_t rows = from.size(0), columns = from.size(1);
  if (columns <= kShortRow) {
    return softmax_short_rows(static_cast<T*>(to.mutable_data_ptr()), row_elements<T>(from), rows,
                              columns, logarithm, short_rows_scratch(columns));
  }
  const auto softmax = (logarithm ? log_softmax_row<T> : softmax_row<T>).of(simd_level());
  float* const scratch = row_scratch(columns, 2);
  const RowOutput<T> output(to, columns, scratch + row_pitch(columns), total_bytes);
  const T* in = row_elements<T>(from);
  for (std::int64_t i = 0; i < rows; ++i, in += columns) {
    softmax(output.row(i), in, scratch, columns);
    output.done(i);
  }
}

template <class T>
void softmax_gradient_rows(const at::Tensor& to, const at::Tensor& grad, const at::Tensor& output,
                           bool logarithm, std::size_t total_bytes) {
  const std::int64_t rows = grad.size(0), columns = grad.size(1);
  const auto gradient =
      (logarithm ? log_softmax_gradient_row<T> : softmax_gradient_row<T>).of(simd_level());
  const RowOutput<T> written(to, columns, row_scratch(columns, 1), total_bytes);
  const T *in = row_elements<T>(grad), *values = row_elements<T>(output);
  for (std::int64_t i = 0; i < rows; ++i, in += columns, values += columns) {
    gradient(written.row(i), in, values, columns);
    written.done(i);
  }
}

}  // namespace

bool launch_row_softmax(const char* name, bool log, const at::Tensor& result,
                        const at::Tensor& self, std::int64_t dim) {
  if (!takes(result, self, dim)) return false;
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, bool logarithm,
                         std::size_t total_bytes) {
    with_row_element(from.scalar_type(),
                     [&]<class T>() { softmax_rows<T>(to, from, logarithm, total_bytes); });
  };
  launch(name, rows_of(result, 3), kernel, out(result), self, log, result.nbytes());
  return true;
}

bool launch_row_softmax_gradient(const char* name, bool log, const at::Tensor& result,
                                 const at::Tensor& grad, const at::Tensor& output,
                                 std::int64_t dim) {
  if (!takes(result, grad, dim) || !takes(result, output, dim)) return false;
  const auto kernel = [](const at::Tensor& to, const at::Tensor& from, const at::Tensor& values,
                         bool logarithm, std::size_t total_bytes) {
    with_row_element(from.scalar_type(), [&]<class T>() {
      softmax_gradient_rows<T>(to, from, values, logarithm, total_bytes);
    });
  };
  launch(name, rows_of(result, 7), kernel, out(result), grad, output, log, result.nbytes());
  return true;
}

}  // namespace loom::ops
