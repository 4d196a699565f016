// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/expand.h"

#include "loom/fusion/vector_formulas.h"

#include <algorithm>
#include <array>
#include <bit>

namespace loom::fusion::jit {
namespace {

/// The Math of vector_formulas.h that writes instructions. While it does, values have wider
/// numbers: those of inputs and parameters are the body's, those of constants and results begin at
/// kConstants and kResults.
class Writer {
 public:
  static constexpr int kConstants = 1000, kResults = 2000;
  struct Wide {
    Instruction instruction;
    std::array<int, 3> operands;
  };
  struct Vector {
    int id;
  };
  struct Mask {
    int id;
  };

  int write(const Instruction& instruction, std::array<int, 3> operands) {
    wide_.push_back({instruction, operands});
    return kResults + static_cast<int>(wide_.size()) - 1;
  }

  Vector number(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto found = std::find(constants_.begin(), constants_.end(), bits);
    const auto place = static_cast<int>(found - constants_.begin());
    if (found == constants_.end()) constants_.push_back(bits);
    return {kConstants + place};
  }
  Vector add(Vector a, Vector b) { return apply(Op::kAdd, a, b); }
  Vector sub(Vector a, Vector b) { return apply(Op::kSub, a, b); }
  Vector mul(Vector a, Vector b) { return apply(Op::kMul, a, b); }
  Vector div(Vector a, Vector b) { return apply(Op::kDiv, a, b); }
  Vector mul_add(Vector a, Vector b, Vector c) { return apply(Op::kMulAdd, a, b, c); }
  Vector round(Vector a) { return apply(Op::kRound, a); }
  Vector sqrt(Vector a) { return apply(Op::kSqrt, a); }
  Vector neg(Vector a) { return apply(Op::kNeg, a); }
  Vector abs(Vector a) { return apply(Op::kAbs, a); }
  Vector copysign(Vector a, Vector b) { return apply(Op::kCopySign, a, b); }
  Vector fmax(Vector a, Vector b) { return apply(Op::kFMax, a, b); }
  Vector least(Vector a, Vector b) { return apply(Op::kLeast, a, b); }
  Vector greatest(Vector a, Vector b) { return apply(Op::kGreatest, a, b); }
  Vector scale(Vector a, Vector n) { return apply(Op::kScale, a, n); }
  Vector exponent(Vector a) { return apply(Op::kExponent, a); }
  Vector fraction(Vector a) { return apply(Op::kFraction, a); }
  Vector erf_term(Vector which, int row) {
    return {write({.op = Op::kErfTerm, .type = Type::kFloat}, {which.id, row})};
  }
  Vector cdf_term(Vector which, int row) {
    return {write({.op = Op::kCdfTerm, .type = Type::kFloat}, {which.id, row})};
  }
  Mask lt(Vector a, Vector b) { return {apply(Op::kLt, a, b).id}; }
  Vector select(Mask mask, Vector a, Vector b) { return apply(Op::kSelect, {mask.id}, a, b); }

  /// `body` with the instructions that were written; `results` are the new numbers of its results.
  [[nodiscard]] Expanded finish(const Body& body, const std::vector<int>& results) const {
    Expanded expanded{body, constants_};
    expanded.body.params.resize(body.params.size() + constants_.size(), Type::kFloat);
    const int first_constant = static_cast<int>(body.first_result());
    const int first_result = first_constant + static_cast<int>(constants_.size());
    const auto number_of = [&](int id) {
      if (id >= kResults) id += first_result - kResults;
      if (id >= kConstants) id += first_constant - kConstants;
      return static_cast<ValueId>(id);
    };
    expanded.body.instructions.clear();
    for (const Wide& wide : wide_) {
      Instruction instruction = wide.instruction;
      instruction.a = number_of(wide.operands[0]);
      instruction.b = number_of(wide.operands[1]);
      instruction.c = number_of(wide.operands[2]);
      expanded.body.instructions.push_back(instruction);
    }
    for (Output& output : expanded.body.outputs) {
      if (output.value < body.first_result()) continue;
      output.value = number_of(results[output.value - body.first_result()]);
    }
    return expanded;
  }

 private:
  Vector apply(Op op, Vector a, Vector b = {}, Vector c = {}) {
    return {write({.op = op, .type = Type::kFloat}, {a.id, b.id, c.id})};
  }

  std::vector<Wide> wide_;
  std::vector<std::uint32_t> constants_;
};

template <Op op, class... Operand>
int write_formula(Writer& writer, Operand... operands) {
  static_assert(Formula<op>::kExists);
  return Formula<op>::apply(writer, Writer::Vector{operands}...).id;
}

/// The id of the result, or -1 if there is no formula.
int write_function(Writer& writer, Op op, int a, int b) {
  switch (op) {
    case Op::kExp:
      return write_formula<Op::kExp>(writer, a);
    case Op::kExp2:
      return write_formula<Op::kExp2>(writer, a);
    case Op::kExpm1:
      return write_formula<Op::kExpm1>(writer, a);
    case Op::kLog:
      return write_formula<Op::kLog>(writer, a);
    case Op::kLog2:
      return write_formula<Op::kLog2>(writer, a);
    case Op::kLog1p:
      return write_formula<Op::kLog1p>(writer, a);
    case Op::kTanh:
      return write_formula<Op::kTanh>(writer, a);
    case Op::kErf:
      return write_formula<Op::kErf>(writer, a);
    case Op::kNormalCdf:
      return write_formula<Op::kNormalCdf>(writer, a);
    case Op::kHypot:
      return write_formula<Op::kHypot>(writer, a, b);
    default:
      return -1;
  }
}

}  // namespace

Expanded expand(const Body& body) {
  const Analysis analysis = analyse(body);
  Writer writer;
  std::vector<int> results;  // of the original instructions
  const auto id_of = [&](ValueId value) {
    return value < body.first_result() ? int{value} : results[value - body.first_result()];
  };
  for (const Instruction& i : body.instructions) {
    std::array<int, 3> operands = {};
    const ValueId given[] = {i.a, i.b, i.c};
    for (int k = 0; k < operand_count(i.op); ++k) operands[k] = id_of(given[k]);
    const ValueInfo& value = analysis.values[body.first_result() + results.size()];
    int result = -1;
    if (i.type == Type::kFloat && !value.uniform) {
      result = write_function(writer, i.op, operands[0], operands[1]);
    }
    results.push_back(result >= 0 ? result : writer.write(i, operands));
  }
  Expanded expanded = writer.finish(body, results);
  if (expanded.body.value_count() > kMaxExpandedValues) return {body, {}};
  return expanded;
}

}  // namespace loom::fusion::jit
