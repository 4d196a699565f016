// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include <gtest/gtest.h>

#include "support/random_body.h"
#include "support/reference_kernel.h"
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace loom::fusion::testing {
namespace {

constexpr DType kWide[] = {DType::kBool, DType::kInt32, DType::kInt64, DType::kFloat,
                           DType::kDouble};
DType wide(Type type) { return kWide[static_cast<std::size_t>(type)]; }

/// Runs interpreter and reference on the same operands and compares all bits.
void expect_reference(const Body& body, RunShape shape, std::uint64_t seed, bool in_place = false) {
  check_valid(body);
  BodyData data(body, shape, seed, in_place), expected(body, shape, seed, in_place);
  data.run(*make_interpreter(body));
  expected.run(ReferenceKernel(body));
  EXPECT_EQ(data.difference(expected), "")
      << "seed " << seed << ", " << shape.rows << "x" << shape.columns << "+" << shape.padding
      << (in_place ? ", in place" : "") << (body.streaming ? ", streaming" : "") << "\n"
      << to_string(body);
}

/// `op` of inputs, of which those in `uniform` are so: one output.
Body body_of(Op op, Type type, unsigned uniform) {
  Body body;
  Instruction instruction{.op = op, .type = type};
  ValueId* const operands[] = {&instruction.a, &instruction.b, &instruction.c};
  for (int i = 0; i < operand_count(op); ++i) {
    const Type operand = op == Op::kSelect && i == 0 ? Type::kMask : type;
    body.inputs.push_back({wide(operand), (uniform >> i & 1) != 0});
    *operands[i] = static_cast<ValueId>(i);
  }
  body.instructions = {instruction};
  body.outputs = {{static_cast<ValueId>(body.first_result()), wide(result_type(op, type)), false}};
  return body;
}

std::vector<Op> ops(bool functions) {
  std::vector<Op> found;
  for (int i = 0; i <= static_cast<int>(Op::kMin); ++i) {
    if (is_function(static_cast<Op>(i)) == functions) found.push_back(static_cast<Op>(i));
  }
  return found;
}
std::string name_of_case(const ::testing::TestParamInfo<Op>& info) {
  return std::string(name_of(info.param));
}

class InterpreterOpTest : public ::testing::TestWithParam<Op> {
 protected:
  static Op op() { return GetParam(); }
};
class InterpreterFunctionTest : public InterpreterOpTest {};

TEST_P(InterpreterOpTest, IsTheReferenceForAllTypesAndUniformOperands) {
  for (const Type type : kAllTypes) {
    if (!is_defined(op(), type)) continue;
    for (unsigned uniform = 0; uniform < 1U << operand_count(op()); ++uniform) {
      if (is_reduction(op()) && uniform != 0) continue;
      SCOPED_TRACE(std::string(name_of(op())) + " type " + std::to_string(static_cast<int>(type)) +
                   " uniform " + std::to_string(uniform));
      expect_reference(body_of(op(), type, uniform), {3, 700, 0}, 7);
      expect_reference(body_of(op(), type, uniform), {40, 5, 1}, 8);
    }
  }
}

/// Whether a result is near enough to that of the C++ library. Functions that overflow may do so a
/// little early.
template <class T>
bool near(T result, T expected, T relative, T absolute) {
  if (std::isnan(result) || std::isnan(expected)) return std::isnan(result) == std::isnan(expected);
  if (std::isinf(result) && std::fabs(expected) > std::numeric_limits<T>::max() / 4) return true;
  if (std::isinf(result) || std::isinf(expected)) return result == expected;
  return std::fabs(result - expected) <= relative * std::fabs(expected) + absolute;
}

template <class T>
void expect_near_reference(const Body& body, T relative, T absolute) {
  const RunShape shape{4, 1009, 0};
  BodyData data(body, shape, 3), expected(body, shape, 3);
  data.run(*make_interpreter(body));
  expected.run(ReferenceKernel(body));
  int wrong = 0;
  for (std::int64_t i = 0; i < shape.rows * shape.columns && wrong < 5; ++i) {
    T results[2], operands[2] = {};
    std::memcpy(&results[0], data.output(0, 0, i), sizeof(T));
    std::memcpy(&results[1], expected.output(0, 0, i), sizeof(T));
    bool extreme = false;  // Sleef gives up early there: asinh of 1e38 is infinite
    for (std::size_t k = 0; k < body.inputs.size(); ++k) {
      const bool uniform = body.inputs[k].uniform;
      std::memcpy(&operands[k], data.input(k, i / shape.columns, uniform ? 0 : i % shape.columns),
                  sizeof(T));
      const T size = std::fabs(operands[k]);
      extreme = extreme || (std::isfinite(size) && (size > 1e18 || (size > 0 && size < 1e-30)));
    }
    if (extreme || near(results[0], results[1], relative, absolute)) continue;
    ++wrong;
    ADD_FAILURE() << results[0] << " instead of " << results[1] << " for " << operands[0] << ", "
                  << operands[1] << "\n"
                  << to_string(body);
  }
}

TEST_P(InterpreterFunctionTest, IsNearTheStandardLibrarys) {
  const unsigned combinations = operand_count(op()) == 2 ? 3 : 1;
  for (unsigned uniform = 0; uniform < combinations; ++uniform) {
    const float relative = op() == Op::kNormalCdf ? 2e-4F : 1e-6F;  // what bfloat16 can tell
    expect_near_reference<float>(body_of(op(), Type::kFloat, uniform), relative, 1.5e-7F);
    expect_near_reference<double>(body_of(op(), Type::kDouble, uniform), 1e-14, 1e-15);
  }
}

INSTANTIATE_TEST_SUITE_P(Exact, InterpreterOpTest, ::testing::ValuesIn(ops(false)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Functions, InterpreterFunctionTest, ::testing::ValuesIn(ops(true)),
                         name_of_case);

TEST(InterpreterTest, ConvertsEveryDtypeInAndOut) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      for (const bool uniform : {false, true}) {
        Body body{.inputs = {{from, uniform}}};
        ValueId value = 0;
        if (register_type(from) != register_type(to)) {
          constexpr Op kTo[] = {Op::kToMask, Op::kToInt32, Op::kToInt64, Op::kToFloat,
                                Op::kToDouble};
          body.instructions = {
              {kTo[static_cast<std::size_t>(register_type(to))], register_type(from), 0}};
          value = 1;
        }
        body.outputs = {{value, to, false}};
        expect_reference(body, {2, 1500, 3}, 11);
      }
    }
  }
}

TEST(InterpreterTest, BytesOfABoolOtherThanZeroAreTrue) {
  const Body body{.inputs = {{DType::kBool}}, .outputs = {{0, DType::kBool}}};
  BodyData data(body, {1, 3, 0}, 1);
  *data.input(0, 0, 0) = std::byte{0};
  *data.input(0, 0, 1) = std::byte{2};
  *data.input(0, 0, 2) = std::byte{255};
  data.run(*make_interpreter(body));
  EXPECT_EQ(*data.output(0, 0, 0), std::byte{0});
  EXPECT_EQ(*data.output(0, 0, 1), std::byte{1});
  EXPECT_EQ(*data.output(0, 0, 2), std::byte{1});
}

class InterpreterColumnsTest : public ::testing::TestWithParam<std::int64_t> {};

Body softmax() {
  return {.inputs = {{DType::kFloat}},
          .instructions = {{Op::kMax, Type::kFloat, 0},
                           {Op::kSub, Type::kFloat, 0, 1},
                           {Op::kMul, Type::kFloat, 2, 2},
                           {Op::kSum, Type::kFloat, 3},
                           {Op::kDiv, Type::kFloat, 3, 4}},
          .outputs = {{5, DType::kFloat}, {4, DType::kFloat, true}, {1, DType::kFloat, false}}};
}

Body layer_norm() {  // params: 1 / columns, epsilon; inputs: x, weight, bias
  return {.inputs = {{DType::kBFloat16}, {DType::kFloat}, {DType::kFloat}},
          .params = {Type::kFloat, Type::kFloat},
          .instructions = {{Op::kSum, Type::kFloat, 0},
                           {Op::kMul, Type::kFloat, 5, 3},
                           {Op::kSub, Type::kFloat, 0, 6},
                           {Op::kMul, Type::kFloat, 7, 7},
                           {Op::kSum, Type::kFloat, 8},
                           {Op::kMul, Type::kFloat, 9, 3},
                           {Op::kAdd, Type::kFloat, 10, 4},
                           {Op::kRsqrt, Type::kFloat, 11},
                           {Op::kMul, Type::kFloat, 7, 12},
                           {Op::kMulAdd, Type::kFloat, 13, 1, 2}},
          .outputs = {{14, DType::kBFloat16}, {6, DType::kFloat, true}, {12, DType::kFloat, true}}};
}

TEST_P(InterpreterColumnsTest, PhasesAndReductionsAreTheReference) {
  for (const std::int64_t padding : {0, 5}) {
    expect_reference(softmax(), {3, GetParam(), padding}, 5);
    expect_reference(layer_norm(), {3, GetParam(), padding}, 6);
  }
}

TEST_P(InterpreterColumnsTest, RandomBodiesAreTheReference) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Body body =
        random_body(seed * 31 + static_cast<std::uint64_t>(GetParam()), {.functions = false});
    body.streaming = seed % 4 == 3;
    expect_reference(body, {1 + static_cast<std::int64_t>(seed % 3), GetParam(), 0}, seed,
                     seed % 2 == 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, InterpreterColumnsTest,
                         ::testing::Values(0, 1, 7, 63, 64, 65, 1023, 1024, 1025, 5000),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(InterpreterTest, RandomBodiesAreTheReference) {
  for (std::uint64_t seed = 0; seed < 1500 && !::testing::Test::HasFailure(); ++seed) {
    Dice dice(seed ^ 0x5EED);
    Body body = random_body(seed, {.instructions = seed % 10 == 0 ? 90UL : 16UL,
                                   .reductions = static_cast<int>(seed % 4),
                                   .functions = false,
                                   .all_types = seed % 3 != 0});
    body.streaming = dice.one_in(5);
    const auto columns = static_cast<std::int64_t>(dice.one_in(6) ? 2100 : dice.below(200));
    const RunShape shape{static_cast<std::int64_t>(dice.below(6)), columns,
                         static_cast<std::int64_t>(dice.below(2))};
    expect_reference(body, shape, seed, dice.one_in(2));
  }
}

// The elements that share a vector differ with the rows' stride and in place.
TEST(InterpreterTest, RandomBodiesWithFunctionsDoNotDependOnTheLayout) {
  for (std::uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    const Body body = random_body(seed, {.uniforms = false});
    const auto kernel = make_interpreter(body);
    BodyData flat(body, {7, 37, 0}, seed), in_place(body, {7, 37, 0}, seed, true);
    flat.run(*kernel);
    in_place.run(*kernel);
    EXPECT_EQ(flat.difference(in_place), "") << to_string(body);
    if (analyse(body).phases > 1) continue;
    // One element at a time.
    BodyData same(body, {7, 37, 0}, seed);
    std::vector<Place> from(body.inputs.size()), to(body.outputs.size());
    std::vector<Param> params;
    for (std::size_t i = 0; i < body.params.size(); ++i) params.push_back(same.param(i));
    AlignedBytes scratch(kernel->scratch_bytes(1));
    same.run(ReferenceKernel(Body{}));  // makes room for results
    for (std::int64_t element = 0; element < 7 * 37; ++element) {
      for (std::size_t i = 0; i < from.size(); ++i) from[i].data = same.input(i, 0, element);
      for (std::size_t i = 0; i < to.size(); ++i) to[i].data = same.output(i, 0, element);
      kernel->run({1, 1, from.data(), to.data(), params.data(), scratch.data()});
    }
    EXPECT_EQ(flat.difference(same), "") << to_string(body);
  }
}

TEST(InterpreterTest, RowsMayBeShared) {  // a row stride of 0: one row for all rows
  const Body body{.inputs = {{DType::kFloat}, {DType::kFloat}, {DType::kFloat, true}},
                  .instructions = {{Op::kMul, Type::kFloat, 0, 1}, {Op::kAdd, Type::kFloat, 3, 2}},
                  .outputs = {{4, DType::kFloat}}};
  const float x[] = {1, 2, 3, 4, 5, 6}, weight[] = {10, 100, 1000}, bias[] = {0.5F};
  float out[6] = {};
  const auto place = [](const float* at, std::int64_t stride) {
    return Place{reinterpret_cast<std::byte*>(const_cast<float*>(at)), stride};
  };
  const Place inputs[] = {place(x, 12), place(weight, 0), place(bias, 0)};
  const Place outputs[] = {place(out, 12)};
  const auto kernel = make_interpreter(body);
  AlignedBytes scratch(kernel->scratch_bytes(3));
  kernel->run({2, 3, inputs, outputs, nullptr, scratch.data()});
  EXPECT_EQ(std::vector<float>(out, out + 6),
            (std::vector<float>{10.5F, 200.5F, 3000.5F, 40.5F, 500.5F, 6000.5F}));
}

// An output that replaces an input was once written before another output had read it.
TEST(InterpreterTest, OutputsMaySwapTheirInputs) {
  const Body body{.inputs = {{DType::kFloat}, {DType::kFloat}},
                  .instructions = {{Op::kNeg, Type::kFloat, 1}, {Op::kNeg, Type::kFloat, 0}},
                  .outputs = {{2, DType::kFloat}, {3, DType::kFloat}}};
  for (const std::int64_t columns : {1, 5, 3000}) expect_reference(body, {2, columns, 0}, 1, true);
  const Body copies{.inputs = {{DType::kFloat}, {DType::kFloat}},
                    .outputs = {{1, DType::kFloat}, {0, DType::kFloat}}};
  for (const std::int64_t columns : {1, 5, 3000}) {
    expect_reference(copies, {2, columns, 0}, 1, true);
  }
}

}  // namespace
}  // namespace loom::fusion::testing
