// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/row_scratch.h"

#include "loom/device/scratch.h"

#include <algorithm>

namespace loom::ops {
namespace {

const Scratch kRows;

}  // namespace

std::optional<RowElement> row_element(c10::ScalarType dtype) noexcept {
  if (dtype == c10::kFloat) return RowElement::kFloat;
  if (dtype == c10::kBFloat16) return RowElement::kBFloat16;
  return std::nullopt;
}

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
  row_kernels(*row_element(parameter.scalar_type()))
      .to_float(room, parameter.const_data_ptr(), columns);
  return room;
}

}  // namespace loom::ops
