// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/rows/row_scratch.h"

#include <algorithm>
#include <vector>

namespace loom::ops {

std::optional<RowElement> row_element(c10::ScalarType dtype) noexcept {
  if (dtype == c10::kFloat) return RowElement::kFloat;
  if (dtype == c10::kBFloat16) return RowElement::kBFloat16;
  return std::nullopt;
}

float* row_scratch(std::int64_t columns, int count) {
  struct alignas(64) Line {
    float floats[16];
  };
  thread_local std::vector<Line> lines;
  const auto needed = static_cast<std::size_t>(row_pitch(columns) / 16 * count);
  if (lines.size() < needed) lines.resize(needed);
  return lines.data()->floats;
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
