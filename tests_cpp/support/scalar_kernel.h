// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A kernel that runs a body instruction by instruction, one number at a time. What is a function
// (vector_math.h) it asks `FunctionOfNumbers`.

#include "loom/fusion/kernel.h"

#include "support/random_body.h"
#include "support/scalar_ops.h"
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace loom::fusion::testing {

/// Computes what vector_function() is for.
using FunctionOfNumbers = Scalar (*)(const Instruction& instruction, Scalar a, Scalar b);

class ScalarKernel final : public Kernel {
 public:
  explicit ScalarKernel(const Body& body, FunctionOfNumbers function = nullptr)
      : body_(body), analysis_(analyse(body)), function_(function) {}

  void run(const Arguments& arguments) const noexcept override {
    for (std::int64_t row = 0; row < arguments.rows; ++row) run_row(arguments, row);
  }
  [[nodiscard]] std::size_t scratch_bytes(std::int64_t) const noexcept override { return 0; }

 private:
  using Values = std::vector<std::vector<Scalar>>;  ///< [value][column], one column if uniform

  void run_row(const Arguments& arguments, std::int64_t row) const {
    const auto place = [&](const Place& operand) {
      return operand.data + row * operand.row_stride;
    };
    Values values;
    const auto count = [&](std::size_t value) {
      return analysis_.values[value].uniform ? 1 : static_cast<std::size_t>(arguments.columns);
    };
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      const DType dtype = body_.inputs[i].dtype;
      std::vector<Scalar>& into = values.emplace_back(count(i));
      for (std::size_t k = 0; k < into.size(); ++k) {
        into[k] = load(dtype, place(arguments.inputs[i]) + k * size_of(dtype));
      }
    }
    for (std::size_t i = 0; i < body_.params.size(); ++i) {
      values.push_back({arguments.params[i]});
    }
    for (const Instruction& instruction : body_.instructions) {
      values.push_back(is_reduction(instruction.op)
                           ? reduce(instruction, values[instruction.a])
                           : compute(instruction, values, count(values.size())));
    }
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      const auto& [value, dtype, uniform] = body_.outputs[i];
      const std::size_t columns = uniform ? 1 : static_cast<std::size_t>(arguments.columns);
      for (std::size_t k = 0; k < columns; ++k) {
        store(dtype, at(values, value, k), place(arguments.outputs[i]) + k * size_of(dtype));
      }
    }
  }

  static Scalar at(const Values& values, ValueId value, std::size_t column) {
    return values[value].size() == 1 ? values[value][0] : values[value][column];
  }

  std::vector<Scalar> compute(const Instruction& instruction, const Values& values,
                              std::size_t columns) const {
    std::vector<Scalar> result(columns);
    const int operands = operand_count(instruction.op);
    for (std::size_t k = 0; k < columns; ++k) {
      const Scalar a = at(values, instruction.a, k);
      const Scalar b = operands > 1 ? at(values, instruction.b, k) : Scalar{};
      const Scalar c = operands > 2 ? at(values, instruction.c, k) : Scalar{};
      result[k] = is_function(instruction.op) ? function_(instruction, a, b)
                                              : evaluate(instruction, a, b, c);
    }
    return result;
  }

  static std::vector<Scalar> reduce(const Instruction& reduction, const std::vector<Scalar>& from) {
    constexpr auto kLanes = static_cast<std::size_t>(kReductionLanes);
    const Op op = reduction.op == Op::kSum   ? Op::kAdd
                  : reduction.op == Op::kMax ? Op::kMaximum
                                             : Op::kMinimum;
    const Instruction step{.op = op, .type = reduction.type};
    const Scalar start = detail::with_type(reduction.type, [&]<class T>(T zero) {
      using Limits = std::numeric_limits<T>;
      const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
      const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      return detail::written<T>(op == Op::kAdd ? zero : op == Op::kMaximum ? lowest : highest);
    });
    std::vector<Scalar> lanes(kLanes, start);
    for (std::size_t i = 0; i < from.size(); ++i) {
      Scalar& lane = lanes[i % kLanes];
      lane = evaluate(step, lane, from[i], {});
    }
    for (std::size_t n = kLanes / 2; n > 0; n /= 2) {
      for (std::size_t i = 0; i < n; ++i) lanes[i] = evaluate(step, lanes[i], lanes[i + n], {});
    }
    return {lanes[0]};
  }

  const Body body_;
  const Analysis analysis_;
  const FunctionOfNumbers function_;
};

}  // namespace loom::fusion::testing
