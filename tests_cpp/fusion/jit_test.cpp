// SPDX-License-Identifier: BSD-3-Clause
// Machine code against the interpreter and the reference: the same bits.
#include "loom/base/options.h"
#include "loom/fusion/jit/compile.h"
#include "loom/fusion/kernel.h"

#include <gtest/gtest.h>

#include "support/body_data.h"
#include "support/guarded_memory.h"
#include "support/jit_fixture.h"
#include "support/random_body.h"
#include "support/reference_kernel.h"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace loom::fusion {
namespace {

using testing::ReferenceKernel;
using testing::step;

class JitTest : public testing::JitFixture {};

/// relu(x * a + b)
Body relu_body() {
  return {.inputs = {{}},
          .params = {Type::kFloat, Type::kFloat, Type::kFloat},
          .instructions = {step(Op::kMul, 0, 1), step(Op::kAdd, 4, 2), step(Op::kMaximum, 5, 3)},
          .outputs = {{.value = 6}}};
}

/// (x - mean) / sqrt(mean of squares + epsilon)
Body normalise_body() {
  return {.inputs = {{}},
          .params = {Type::kFloat, Type::kFloat},  // 1 / columns, epsilon
          .instructions = {step(Op::kSum, 0), step(Op::kMul, 3, 1), step(Op::kSub, 0, 4),
                           step(Op::kMul, 5, 5), step(Op::kSum, 6), step(Op::kMul, 7, 1),
                           step(Op::kAdd, 8, 2), step(Op::kRsqrt, 9), step(Op::kMul, 5, 10)},
          .outputs = {{.value = 11}, {.value = 4, .uniform = true}}};
}

TEST_P(JitTest, TailsOfAllLengthsAreRight) {
  const auto relu = make(relu_body()), normalise = make(normalise_body());
  ASSERT_TRUE(relu != nullptr && normalise != nullptr);
  for (std::int64_t columns = 0; columns <= 200; ++columns) {
    expect_same_from(*relu, relu_body(), {.rows = 3, .columns = columns, .padding = 3});
    expect_same_from(*normalise, normalise_body(), {.rows = 2, .columns = columns, .padding = 5});
  }
}

/// The operation on elements, on a uniform operand, and its result stored to all dtypes.
Body body_of(Op op, Type type, std::size_t variant) {
  Body body;
  const auto some_dtype = [](Type of) {
    switch (of) {
      case Type::kMask:
        return DType::kBool;
      case Type::kInt32:
        return DType::kInt32;
      case Type::kInt64:
        return DType::kInt64;
      case Type::kFloat:
        return DType::kFloat;
      default:
        return DType::kDouble;
    }
  };
  const int operands = operand_count(op);
  for (int i = 0; i < operands; ++i) {
    const Type operand = op == Op::kSelect && i == 0 ? Type::kMask : type;
    body.inputs.push_back({some_dtype(operand), variant == static_cast<std::size_t>(i) + 1});
  }
  body.instructions.push_back(step(op, 0, 1, 2, type));
  const auto result = static_cast<ValueId>(operands);
  for (const DType dtype : testing::kAllDTypes) {
    if (register_type(dtype) == result_type(op, type)) body.outputs.push_back({result, dtype});
  }
  return body;
}

TEST_P(JitTest, EveryOperationGivesTheBitsThatItShould) {
  for (int i = 0; i < static_cast<int>(Op::kSum); ++i) {
    const auto op = static_cast<Op>(i);
    for (const Type type : testing::kAllTypes) {
      if (!is_defined(op, type) || testing::is_function(op)) continue;
      for (std::size_t variant = 0; variant <= 3; ++variant) {
        if (variant > static_cast<std::size_t>(operand_count(op))) break;
        const Body body = body_of(op, type, variant);
        expect_same(body, {.rows = 5, .columns = 333});
      }
    }
  }
}

TEST_P(JitTest, EveryTypeInMemoryIsLoadedAndStored) {
  for (const DType from : testing::kAllDTypes) {
    for (const DType to : testing::kAllDTypes) {
      if (register_type(from) != register_type(to)) continue;
      for (const bool uniform : {false, true}) {
        Body body;
        body.inputs = {{.dtype = from}, {.dtype = from, .uniform = true}};
        body.outputs = {{.value = 0, .dtype = to},
                        {.value = 1, .dtype = to, .uniform = uniform},
                        {.value = 0, .dtype = from}};
        for (const bool streaming : {false, true}) {
          body.streaming = streaming;
          for (const std::int64_t columns : {1, 7, 8, 15, 16, 17, 63, 64, 65, 128, 1000}) {
            expect_same(body, {.rows = 3, .columns = columns});
          }
        }
      }
    }
  }
}

TEST_P(JitTest, RowsThatBeginAnywhereAreStreamed) {
  const auto expect = [](Body body) {
    body.streaming = true;
    body.aligned = false;
    const auto kernel = make(body);
    ASSERT_NE(kernel, nullptr);
    for (const std::int64_t columns : {1, 7, 8, 15, 16, 17, 31, 64, 65, 130, 257, 1000}) {
      for (const std::int64_t padding : {0, 1, 6}) {
        expect_same_from(*kernel, body, {.rows = 7, .columns = columns, .padding = padding});
      }
    }
  };
  for (const DType dtype : testing::kAllDTypes) {
    Body body;
    body.inputs = {{.dtype = dtype}, {.dtype = dtype, .uniform = true}};
    body.outputs = {{.value = 0, .dtype = dtype}, {.value = 1, .dtype = dtype}};
    expect(body);
  }
  expect(relu_body());
  expect(normalise_body());
  if (GetParam() != vector_level()) return;  // whose functions are others
  expect({.inputs = {{}}, .instructions = {step(Op::kExp, 0)}, .outputs = {{.value = 1}}});
}

/// Whether rows of all outputs begin alike where those of one do.
bool outputs_are_alike(const Body& body) {
  return std::all_of(body.outputs.begin(), body.outputs.end(), [&](const Output& output) {
    return size_of(output.dtype) == size_of(body.outputs.front().dtype);
  });
}

TEST_P(JitTest, RandomBodies) {
  const testing::RandomBodyLimits all{.functions = false};
  const testing::RandomBodyLimits floats{
      .instructions = 40, .reductions = 4, .functions = false, .all_types = false};
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Body body = testing::random_body(seed, seed % 2 == 0 ? all : floats);
    if (seed % 3 == 1 && outputs_are_alike(body)) {
      body.streaming = true;
      body.aligned = false;
    }
    const auto kernel = make(body);
    ASSERT_NE(kernel, nullptr);
    const auto columns = static_cast<std::int64_t>(seed * 7 % 300);
    expect_same_from(*kernel, body, {.rows = 3, .columns = columns, .padding = 2}, seed,
                     seed % 3 == 0);
    if (HasFailure()) return;
  }
}

/// Runs the body on operands of which each begins or ends where memory does.
void run_guarded(const Kernel& kernel, const Body& body, std::int64_t columns, bool at_end,
                 std::vector<std::vector<std::byte>>& results) {
  testing::Dice dice(static_cast<std::uint64_t>(columns));
  std::vector<std::unique_ptr<testing::GuardedMemory>> memory;
  std::vector<Place> inputs, outputs;
  const auto add = [&](std::vector<Place>& to, DType dtype) {
    const std::size_t bytes = size_of(dtype) * static_cast<std::size_t>(columns);
    memory.push_back(std::make_unique<testing::GuardedMemory>(bytes, at_end));
    to.push_back({memory.back()->data(), 0});
  };
  for (const Input& input : body.inputs) {
    add(inputs, input.dtype);
    for (std::int64_t i = 0; i < columns; ++i) {
      store_interesting(dice, input.dtype,
                        inputs.back().data + i * static_cast<std::int64_t>(size_of(input.dtype)));
    }
  }
  for (const Output& output : body.outputs) add(outputs, output.dtype);
  kernel.run({.rows = 1,
              .columns = columns,
              .inputs = inputs.data(),
              .outputs = outputs.data(),
              .params = nullptr,
              .scratch = nullptr});
  results.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t bytes = size_of(body.outputs[i].dtype) * static_cast<std::size_t>(columns);
    results.emplace_back(outputs[i].data, outputs[i].data + bytes);
  }
}

TEST_P(JitTest, TouchesNothingOutsideOfARow) {
  for (const DType dtype : testing::kAllDTypes) {
    Body body;
    body.inputs = {{.dtype = dtype}, {.dtype = dtype}};
    body.outputs = {{.value = 0, .dtype = dtype}, {.value = 1, .dtype = dtype}};
    const auto kernel = make(body);
    ASSERT_NE(kernel, nullptr);
    for (std::int64_t columns = 1; columns <= 130; ++columns) {
      for (const bool at_end : {false, true}) {
        std::vector<std::vector<std::byte>> machine, scalar;
        run_guarded(*kernel, body, columns, at_end, machine);
        run_guarded(ReferenceKernel(body), body, columns, at_end, scalar);
        for (std::size_t i = 0; i < machine.size(); ++i) {
          for (std::size_t at = 0; at < machine[i].size(); at += size_of(dtype)) {
            ASSERT_TRUE(testing::same_element(dtype, &machine[i][at], &scalar[i][at]));
          }
        }
      }
    }
  }
}

TEST_P(JitTest, RowsMayBeTheSameOrBackwards) {
  const auto kernel = make(relu_body());
  ASSERT_NE(kernel, nullptr);
  constexpr std::int64_t kColumns = 37;
  std::vector<float> from(3 * kColumns), forward(3 * kColumns), backward(3 * kColumns),
      last(kColumns);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i) - 40.0F;
  const std::vector<Param> params = {{.float32 = 0.5F}, {.float32 = 2}, {.float32 = 0}};
  const auto run = [&](float* in, std::int64_t in_stride, float* out, std::int64_t out_stride) {
    const Place input{reinterpret_cast<std::byte*>(in), in_stride * 4};
    const Place output{reinterpret_cast<std::byte*>(out), out_stride * 4};
    kernel->run({.rows = 3,
                 .columns = kColumns,
                 .inputs = &input,
                 .outputs = &output,
                 .params = params.data(),
                 .scratch = nullptr});
  };
  run(from.data(), kColumns, forward.data(), kColumns);
  run(from.data() + 2 * kColumns, -kColumns, backward.data() + 2 * kColumns, -kColumns);
  EXPECT_EQ(forward, backward);
  run(from.data(), kColumns, last.data(), 0);
  EXPECT_EQ(last, std::vector<float>(forward.end() - kColumns, forward.end()));
  run(from.data(), 0, backward.data(), kColumns);
  EXPECT_EQ(std::vector<float>(backward.end() - kColumns, backward.end()),
            std::vector<float>(forward.begin(), forward.begin() + kColumns));
}

TEST_P(JitTest, LaterPhasesSeeValuesOfEarlierOnes) {
  Body body;  // roots / sum of roots, and the roots, of a column's distance from the mean of a row
  body.inputs = {{}, {.dtype = DType::kBFloat16}, {.uniform = true}};
  body.instructions = {step(Op::kSum, 0),           step(Op::kMul, 3, 2), step(Op::kSub, 1, 4),
                       step(Op::kAbs, 5),           step(Op::kSqrt, 6),   step(Op::kSum, 7),
                       step(Op::kGt, 5, 3),         step(Op::kDiv, 7, 8), step(Op::kMax, 10),
                       step(Op::kSelect, 9, 10, 11)};
  body.outputs = {
      {.value = 12}, {.value = 7, .dtype = DType::kHalf}, {.value = 11, .uniform = true}};
  const auto kernel = make(body);
  ASSERT_NE(kernel, nullptr);
  for (const std::int64_t columns : {1, 63, 64, 65, 200, 1024}) {
    EXPECT_GT(kernel->scratch_bytes(columns), 0U);
    expect_same_from(*kernel, body, {.rows = 3, .columns = columns});
  }
}

TEST_P(JitTest, MoreReductionsThanRegisters) {
  for (const bool wide : {false, true}) {
    Body body;
    body.inputs = {{}, {.dtype = wide ? DType::kDouble : DType::kFloat}};
    const Type type = wide ? Type::kDouble : Type::kFloat;
    for (int i = 0; i < 12; ++i) {
      const Op op = i % 3 == 0 ? Op::kSum : i % 3 == 1 ? Op::kMax : Op::kMin;
      body.instructions.push_back(step(op, i % 2, 0, 0, i % 2 == 0 ? Type::kFloat : type));
      const auto value = static_cast<ValueId>(2 + i);
      body.outputs.push_back({.value = value,
                              .dtype = i % 2 == 0 ? DType::kFloat : body.inputs[1].dtype,
                              .uniform = true});
    }
    for (const std::int64_t columns : {0, 1, 15, 64, 129, 1000}) {
      expect_same(body, {.rows = 3, .columns = columns});
    }
  }
}

TEST_P(JitTest, ThreadsCompileAndRunAtOnce) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      // Kernels come and go, so that code takes the place of other code.
      for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const Body body = testing::random_body(seed * kThreads + static_cast<std::uint64_t>(thread),
                                               {.functions = false});
        expect_same(body, {.rows = 2, .columns = 50}, seed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(JitTest, ChildrenOfForkMakeTheirOwnCode) {
  const auto kernel = make(relu_body());
  ASSERT_NE(kernel, nullptr);
  EXPECT_EXIT(
      {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
          expect_same(testing::random_body(seed, {.functions = false}), {.columns = 50});
        }
        std::_Exit(HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  expect_same_from(*kernel, relu_body(), {.columns = 50});
}

TEST(CompileTest, FollowsTheOptions) {
  const bool wanted = options().fusion_jit && options().simd != SimdLevel::kScalar &&
                      jit::widest_level() != SimdLevel::kScalar;
  EXPECT_EQ(compile(relu_body()) != nullptr, wanted);
}

INSTANTIATE_TEST_SUITE_P(Levels, JitTest, ::testing::Values(SimdLevel::kAvx2, SimdLevel::kAvx512),
                         testing::level_name);

}  // namespace
}  // namespace loom::fusion
