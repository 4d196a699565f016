// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/row_scratch.h"

#include "loom/device/scratch.h"
#include "loom/kernels/copy/convert_row.h"

#include <algorithm>

namespace loom::ops {
namespace {

const Scratch kRows;

}  // namespace

float* row_scratch(std::int64_t columns, int count) {
  return kRows.get<float>(row_pitch(columns) * count);
}

const float* row_parameter(const at::Tensor& parameter, float absent, float* room,
                           std::int64_t columns) {
  if (!parameter.defined()) {
    std::fill_n(room, columns, absent);
    return room;
  }
  if (parameter.scalar_type() == c10::kFloat) return parameter.const_data_ptr<float>();
  with_row_element(parameter.scalar_type(), [&]<class T>() {
    kernels::widen_row<T>(room, row_elements<T>(parameter), columns);
  });
  return room;
}

}  // namespace loom::ops
