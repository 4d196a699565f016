// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Random bodies, for tests that compare kernels of the same body (body_data.h gives them operands).
// The same seed gives the same body everywhere.

#include "loom/fusion/body.h"

#include "support/body_data.h"
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion::testing {

inline constexpr std::array kAllTypes = {Type::kMask, Type::kInt32, Type::kInt64, Type::kFloat,
                                         Type::kDouble};
inline constexpr std::array kAllDTypes = {
    DType::kBool,  DType::kUInt8, DType::kInt8,     DType::kInt16, DType::kInt32,
    DType::kInt64, DType::kHalf,  DType::kBFloat16, DType::kFloat, DType::kDouble};

struct RandomBodyLimits {
  std::size_t inputs = 5, params = 3, outputs = 4, instructions = 16;
  int reductions = 2;     ///< at most so many
  bool functions = true;  ///< operations that vector_function() is for
  bool uniforms = true;   ///< uniform inputs and outputs
  bool all_types = true;  ///< else kFloat and kMask only, and float, half, bfloat16 and bool
};

/// Whether vector_function() is what computes the operation.
inline bool is_function(Op op) {
  return (op >= Op::kExp && op <= Op::kLgamma) || (op >= Op::kPow && op <= Op::kFmod);
}

namespace detail {

/// A body in the making: picks operands among the values that are there.
class BodyMaker {
 public:
  BodyMaker(std::uint64_t seed, const RandomBodyLimits& limits) : dice_(seed), limits_(limits) {}

  Body make() {
    add_inputs();
    const std::size_t params = dice_.below(limits_.params + 1);
    for (std::size_t i = 0; i < params; ++i) body_.params.push_back(random_type());
    for (const Type type : body_.params) values_.push_back({type, true});
    const std::size_t instructions = 1 + dice_.below(limits_.instructions);
    for (int tries = 0; body_.instructions.size() < instructions && tries < 2000; ++tries) {
      try_instruction();
    }
    add_outputs();
    return body_;
  }

 private:
  struct Value {
    Type type;
    bool uniform;
  };

  Type random_type() {
    return limits_.all_types ? kAllTypes[dice_.below(kAllTypes.size())] : Type::kFloat;
  }
  DType random_dtype() {
    constexpr std::array kFew = {DType::kFloat, DType::kFloat, DType::kBFloat16, DType::kHalf,
                                 DType::kBool};
    return limits_.all_types ? kAllDTypes[dice_.below(kAllDTypes.size())]
                             : kFew[dice_.below(kFew.size())];
  }

  void add_inputs() {
    const std::size_t inputs = 1 + dice_.below(limits_.inputs);
    for (std::size_t i = 0; i < inputs; ++i) {
      const bool uniform = i > 0 && limits_.uniforms && dice_.one_in(4);
      body_.inputs.push_back({random_dtype(), uniform});
      values_.push_back({register_type(body_.inputs.back().dtype), uniform});
    }
  }

  /// A value of `type`, rather a late one; false if there is none.
  bool pick(Type type, ValueId& id) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].type == type) found.push_back(i);
    }
    if (found.empty()) return false;
    const std::size_t which = std::max(dice_.below(found.size()), dice_.below(found.size()));
    id = static_cast<ValueId>(found[which]);
    return true;
  }

  /// The sign of a NaN that was computed is nobody's promise: copysign takes signs of inputs only.
  bool sign_is_known(ValueId id) const { return id < body_.first_result(); }

  void try_instruction() {
    Instruction next{.op = static_cast<Op>(dice_.below(static_cast<std::size_t>(Op::kMin) + 1)),
                     .type = values_[dice_.below(values_.size())].type};
    if (!is_defined(next.op, next.type)) return;
    if (is_function(next.op) && !limits_.functions) return;
    if (is_reduction(next.op) && reductions_ == limits_.reductions) return;
    const Type result = result_type(next.op, next.type);
    if (!limits_.all_types && result != Type::kFloat && result != Type::kMask) return;
    const std::array<ValueId*, 3> operands = {&next.a, &next.b, &next.c};
    bool uniform = true;
    for (int i = 0; i < operand_count(next.op); ++i) {
      const Type type = next.op == Op::kSelect && i == 0 ? Type::kMask : next.type;
      if (!pick(type, *operands[i])) return;
      uniform = uniform && values_[*operands[i]].uniform;
    }
    if (next.op == Op::kCopySign && !sign_is_known(next.b)) return;
    if (is_reduction(next.op)) {
      if (uniform) return;
      uniform = true;
      ++reductions_;
    }
    body_.instructions.push_back(next);
    values_.push_back({result, uniform});
  }

  DType dtype_for(Type type) {
    for (;;) {
      const DType dtype = kAllDTypes[dice_.below(kAllDTypes.size())];
      if (register_type(dtype) == type) return dtype;
    }
  }

  void add_outputs() {
    const std::size_t outputs = 1 + dice_.below(limits_.outputs);
    for (std::size_t i = 0; i < outputs; ++i) {
      const std::size_t last = values_.size() - 1;
      const std::size_t id = i == 0 ? last : std::max(dice_.below(last + 1), dice_.below(last + 1));
      const bool uniform = values_[id].uniform && limits_.uniforms && dice_.one_in(2);
      body_.outputs.push_back({static_cast<ValueId>(id), dtype_for(values_[id].type), uniform});
    }
  }

  Dice dice_;
  RandomBodyLimits limits_;
  Body body_;
  std::vector<Value> values_;
  int reductions_ = 0;
};

}  // namespace detail

/// A valid body. Values of floating-point types that are stored to narrower ones need not have been
/// rounded to them: stores round.
[[nodiscard]] inline Body random_body(std::uint64_t seed, const RandomBodyLimits& limits = {}) {
  return detail::BodyMaker(seed, limits).make();
}

}  // namespace loom::fusion::testing
