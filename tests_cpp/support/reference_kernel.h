// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a body means, written down as plainly as possible: one instruction after the other, each for
// a whole row, each element by itself. The oracle of all kernels.

#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include "support/reference_operations.h"
#include "support/reference_values.h"
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace loom::fusion::testing {

class ReferenceKernel final : public Kernel {
 public:
  explicit ReferenceKernel(const Body& body) : body_(body), analysis_(analyse(body)) {}

  void run(const Arguments& arguments) const noexcept override {
    for (std::int64_t row = 0; row < arguments.rows; ++row) run_row(arguments, row);
  }
  [[nodiscard]] std::size_t scratch_bytes(std::int64_t /*columns*/) const noexcept override {
    return 0;
  }

 private:
  using Row = std::vector<Param>;  ///< one element if the value is uniform

  void run_row(const Arguments& arguments, std::int64_t row) const {
    const auto count = [&](bool uniform) {
      return static_cast<std::size_t>(uniform ? 1 : arguments.columns);
    };
    const auto at = [row](const Place& place, DType dtype, std::size_t i) {
      return place.data + row * place.row_stride + static_cast<std::int64_t>(i * size_of(dtype));
    };
    std::vector<Row> values;
    for (std::size_t k = 0; k < body_.inputs.size(); ++k) {
      const DType dtype = body_.inputs[k].dtype;
      values.emplace_back(count(body_.inputs[k].uniform));
      for (std::size_t i = 0; i < values[k].size(); ++i) {
        values[k][i] = detail::loaded(dtype, at(arguments.inputs[k], dtype, i));
      }
    }
    for (std::size_t k = 0; k < body_.params.size(); ++k) values.push_back({arguments.params[k]});
    for (const Instruction& instruction : body_.instructions) {
      values.push_back(
          computed(instruction, values, count(analysis_.values[values.size()].uniform)));
    }
    for (std::size_t k = 0; k < body_.outputs.size(); ++k) {
      const Output& output = body_.outputs[k];
      for (std::size_t i = 0; i < count(output.uniform); ++i) {
        const Row& value = values[output.value];
        detail::store(output.dtype, value[value.size() == 1 ? 0 : i],
                      at(arguments.outputs[k], output.dtype, i));
      }
    }
  }

  static Row computed(const Instruction& instruction, const std::vector<Row>& values,
                      std::size_t count) {
    const auto operand = [&values](ValueId id, std::size_t i) {
      return values[id][values[id].size() == 1 ? 0 : i];
    };
    const int operands = operand_count(instruction.op);
    Row result(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (instruction.op == Op::kSelect) {
        const bool yes = operand(instruction.a, i).mask;
        result[i] = operand(yes ? instruction.b : instruction.c, i);
        continue;
      }
      result[i] = detail::with_type(instruction.type, [&]<class T>(T) {
        if constexpr (!std::is_same_v<T, bool>) {
          if (is_reduction(instruction.op)) {
            return detail::reduced<T>(instruction.op, values[instruction.a]);
          }
        }
        const T a = detail::as<T>(operand(instruction.a, i));
        const T b = operands > 1 ? detail::as<T>(operand(instruction.b, i)) : T(0);
        const T c = operands > 2 ? detail::as<T>(operand(instruction.c, i)) : T(0);
        return detail::result_of<T>(instruction.op, a, b, c);
      });
    }
    return result;
  }

  const Body body_;
  const Analysis analysis_;
};

}  // namespace loom::fusion::testing
