// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/check.h"
#include "loom/fusion/interpreter_plan.h"
#include "loom/fusion/kernel.h"
#include "loom/fusion/simd_functions.h"
#include "loom/fusion/vector_math.h"

#include <algorithm>
#include <array>

namespace loom::fusion {
namespace {

constexpr std::size_t kMaxSlots = 1024;

const Primitives& best_primitives() noexcept {
  switch (vector_level()) {
    case SimdLevel::kAvx512:
      return avx512_primitives();
    case SimdLevel::kAvx2:
      return avx2_primitives();
    default:
      return scalar_primitives();
  }
}

std::size_t row_bytes(std::int64_t columns, std::size_t size) {
  return (static_cast<std::size_t>(columns) * size + 63) / 64 * 64;
}

/// The current addresses of a plan's slots, and the steps that use them.
class Run {
 public:
  Run(const InterpreterPlan& plan, const Arguments& arguments, std::int64_t columns)
      : plan_(plan), arguments_(arguments), columns_(columns) {
    for (const Operand& param : plan.params) {
      at_[param.slot] = const_cast<Param*>(arguments.params + param.index);
    }
    for (const Buffer& buffer : plan.buffers) at_[buffer.slot] = arguments.scratch + buffer.offset;
    for (std::size_t i = 0; i < plan.directs.size(); ++i) direct_[i] = is_direct(plan.directs[i]);
    for (const Step& step : plan.once) call(step, 1);
  }

  void row(std::int64_t row) {
    set_row(plan_.inputs, arguments_.inputs, row);
    set_row(plan_.outputs, arguments_.outputs, row);
    for (const Phase& phase : plan_.phases) run(phase, row);
    set_row(plan_.outputs, arguments_.outputs, row);
    for (const Step& step : plan_.row_end) call(step, 1);
  }

 private:
  /// An output that is an input which is read after the output was written needs a tile.
  bool is_direct(const Direct& direct) const {
    const std::byte* const out = arguments_.outputs[direct.output].data;
    return std::none_of(direct.later_inputs.begin(), direct.later_inputs.end(),
                        [&](std::uint8_t input) { return arguments_.inputs[input].data == out; });
  }

  void set_row(const std::vector<Operand>& operands, const Place* places, std::int64_t row) {
    for (const Operand& operand : operands) {
      const Place& place = places[operand.index];
      at_[operand.slot] = place.data + row * place.row_stride;
    }
  }

  void set_row_buffers() {
    std::byte* next = arguments_.scratch + plan_.fixed_bytes;
    for (const Buffer& buffer : plan_.row_buffers) {
      at_[buffer.slot] = next;
      next += row_bytes(columns_, buffer.size);
    }
  }

  void run(const Phase& phase, std::int64_t row) {
    if (&phase != plan_.phases.data()) set_row(plan_.inputs, arguments_.inputs, row);
    set_row_buffers();
    for (const Step& step : phase.row) call(step, 1);
    const bool last = &phase == &plan_.phases.back();
    for (std::int64_t begin = 0; begin < columns_; begin += plan_.tile) {
      const std::int64_t n = std::min(plan_.tile, columns_ - begin);
      if (last) set_directs();
      for (const Step& step : phase.tile) call(step, n);
      if (last) store_tiles(n);
      for (const Moving& moving : phase.moving) {
        at_[moving.slot] = static_cast<std::byte*>(at_[moving.slot]) + n * moving.size;
      }
    }
    for (const Step& step : phase.finish) call(step, 1);
  }

  void set_directs() {
    for (std::size_t i = 0; i < plan_.directs.size(); ++i) {
      const Direct& direct = plan_.directs[i];
      at_[direct.slot] =
          direct_[i] ? at_[direct.memory] : static_cast<void*>(arguments_.scratch + direct.offset);
    }
  }

  void store_tiles(std::int64_t n) {
    for (std::size_t i = 0; i < plan_.directs.size(); ++i) {
      const Direct& direct = plan_.directs[i];
      if (!direct_[i]) direct.store(at_[direct.memory], at_[direct.slot], nullptr, nullptr, n);
    }
  }

  void call(const Step& step, std::int64_t n) {
    step.run(at_[step.out], at_[step.a], at_[step.b], at_[step.c], n);
  }

  const InterpreterPlan& plan_;
  const Arguments& arguments_;
  const std::int64_t columns_;
  std::array<void*, kMaxSlots> at_;
  std::array<bool, Body::kMaxOutputs> direct_{};
};

class Interpreter final : public Kernel {
 public:
  explicit Interpreter(const Body& body)
      : body_(body), plan_(make_interpreter_plan(body, best_primitives())) {
    LOOM_CHECK(plan_.slots <= kMaxSlots, "fusion: a body needs more slots than there are");
  }

  void run(const Arguments& arguments) const noexcept override {
    if (arguments.rows <= 0) return;
    const bool flat = is_flat(arguments);
    Run run(plan_, arguments, flat ? arguments.rows * arguments.columns : arguments.columns);
    const std::int64_t rows = flat ? 1 : arguments.rows;
    for (std::int64_t row = 0; row < rows; ++row) run.row(row);
  }

  [[nodiscard]] std::size_t scratch_bytes(std::int64_t columns) const noexcept override {
    std::size_t bytes = plan_.fixed_bytes;
    for (const Buffer& buffer : plan_.row_buffers) bytes += row_bytes(columns, buffer.size);
    return bytes;
  }

 private:
  /// Whether all rows can be done as one: they follow each other and nothing belongs to one of
  /// them.
  bool is_flat(const Arguments& arguments) const {
    if (plan_.phases.size() > 1) return false;
    const auto follows = [&arguments](const Place& place, DType dtype, bool uniform) {
      const auto size = static_cast<std::int64_t>(size_of(dtype));
      return place.row_stride == (uniform ? 0 : arguments.columns * size);
    };
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      const Input& input = body_.inputs[i];
      if (!follows(arguments.inputs[i], input.dtype, input.uniform)) return false;
    }
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      const Output& output = body_.outputs[i];
      if (output.uniform || !follows(arguments.outputs[i], output.dtype, false)) return false;
    }
    return true;
  }

  const Body body_;
  const InterpreterPlan plan_;
};

}  // namespace

std::shared_ptr<const Kernel> make_interpreter(const Body& body) {
  return std::make_shared<const Interpreter>(body);
}

}  // namespace loom::fusion
