// SPDX-License-Identifier: BSD-3-Clause
// How near the functions of vectors are to the truth, which is taken from double.
#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"
#include "loom/fusion/vector_math.h"

#include <gtest/gtest.h>

#include "support/body_data.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

namespace loom::fusion {
namespace {

struct Case {
  Op op;
  double (*exact)(double);
  double ulps;  ///< the largest error
  friend void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c.op); }
};

std::vector<float> computed(Op op, const std::vector<float>& x, const std::vector<float>& y) {
  const Body body{.inputs = {{DType::kFloat, false}, {DType::kFloat, false}},
                  .instructions = {{op, Type::kFloat, 0, 1}},
                  .outputs = {{2, DType::kFloat, false}}};
  std::vector<float> result(x.size());
  const auto place = [](const std::vector<float>& v) {
    return Place{reinterpret_cast<std::byte*>(const_cast<float*>(v.data())), 0};
  };
  const Place inputs[] = {place(x), place(y)};
  const Place outputs[] = {place(result)};
  const auto kernel = make_interpreter(body);
  const auto columns = static_cast<std::int64_t>(x.size());
  testing::AlignedBytes scratch(kernel->scratch_bytes(columns));
  kernel->run({1, columns, inputs, outputs, nullptr, scratch.data()});
  return result;
}

/// The distance in units of the last place of the exact result; infinite if the kind is wrong.
double error(float result, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(nearest) || std::isnan(result)) {
    return std::isnan(nearest) == std::isnan(result) ? 0 : std::numeric_limits<double>::infinity();
  }
  if (result == nearest) return std::signbit(result) == std::signbit(nearest) ? 0.5 : 1e9;
  if (std::isinf(exact)) return 1e9;
  const int exponent = std::ilogb(std::max(std::fabs(exact), 0x1p-126));
  constexpr double kBeyond = 0x1p128;  // what comes after the largest float
  const double value = std::isinf(result) ? std::copysign(kBeyond, result) : double{result};
  return std::fabs(value - exact) / std::ldexp(1.0, std::min(exponent, 127) - 23);
}

class VectorFormulasTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (vector_level() == SimdLevel::kScalar)
      GTEST_SKIP() << "these are the C++ library's functions";
  }
};

// Every 1021st float of all: each exponent has 8000 of them.
TEST_P(VectorFormulasTest, IsAsNearAsItSays) {
  const Case& c = GetParam();
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  std::vector<float> x(1 << 16);
  double worst = 0;
  float where = 0;
  for (std::uint64_t bits = 0; bits < kAll;) {
    for (float& value : x) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(std::min(bits, kAll - 1)));
      bits += 1021;
    }
    const std::vector<float> result = computed(c.op, x, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double here = error(result[i], c.exact(double{x[i]}));
      if (here <= worst) continue;
      worst = here;
      where = x[i];
    }
  }
  EXPECT_LE(worst, c.ulps) << name_of(c.op) << " of " << where;
}

TEST_P(VectorFormulasTest, SpecialNumbersAreRight) {
  const Case& c = GetParam();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {
      0.0F,      kInfinity, std::nanf(""), 1.0F,           0x1p-149F, 0x1.FFFFFCp-127F,
      0x1p-126F, 0x1p-24F,  0x1p127F,      88.72F,         88.73F,    87.33F,
      103.9F,    104.0F,    127.99F,       128.0F,         149.0F,    150.1F,
      9.01F,     3.9F,      3.925F,        17.5F,          0.34657F,  0.34658F,
      0.125F,    0.75F,     1.5F,          0x1.FFFFFEp127F};
  const std::size_t count = x.size();
  for (std::size_t i = 0; i < count; ++i) x.push_back(-x[i]);
  const std::vector<float> result = computed(c.op, x, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(error(result[i], c.exact(double{x[i]})), c.ulps)
        << name_of(c.op) << " of " << x[i] << " is " << result[i];
  }
}

constexpr double kHypotUlps = 1.2;

TEST(HypotTest, IsNearTheTruthAndSymmetric) {
  if (vector_level() == SimdLevel::kScalar) GTEST_SKIP() << "this is the C++ library's function";
  testing::Dice dice(1);
  std::vector<float> x(1 << 20), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(dice.bits()));
    // Mostly of about the same size, else one of them hardly counts.
    y[i] = dice.one_in(8) ? std::bit_cast<float>(static_cast<std::uint32_t>(dice.bits()))
                          : x[i] * static_cast<float>(std::exp2(dice.unit() * 16 - 8));
  }
  const std::vector<float> result = computed(Op::kHypot, x, y), other = computed(Op::kHypot, y, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::hypot(double{x[i]}, double{y[i]});
    ASSERT_LE(error(result[i], exact), kHypotUlps) << x[i] << ", " << y[i] << ": " << result[i];
    ASSERT_TRUE(result[i] == other[i] || std::isnan(exact)) << x[i] << ", " << y[i];
  }
}

TEST(HypotTest, SpecialNumbersAreRight) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0F,      -0.0F,           1.0F,           -3.0F,
                                     kInfinity, -kInfinity,      std::nanf(""),  0x1p-149F,
                                     0x1p-126F, 0x1.FFFFFEp127F, 0x1.6A09E6p127F};
  std::vector<float> x, y;
  for (const float a : values) {
    for (const float b : values) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  const std::vector<float> result = computed(Op::kHypot, x, y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(error(result[i], std::hypot(double{x[i]}, double{y[i]})), kHypotUlps)
        << x[i] << ", " << y[i] << ": " << result[i];
  }
}

// Of each bfloat16: what it is made for.
TEST(NormalCdfTest, IsAsNearAsBFloat16Tells) {
  if (vector_level() == SimdLevel::kScalar) GTEST_SKIP() << "this is the C++ library's function";
  std::vector<float> x(1 << 16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i << 16));
  }
  const std::vector<float> result = computed(Op::kNormalCdf, x, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::erfc(-double{x[i]} * M_SQRT1_2) / 2;
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(result[i]));
    } else if (x[i] > -3.2F) {
      EXPECT_NEAR(result[i], exact, exact * 0x1p-15) << x[i];
    } else {
      EXPECT_NEAR(result[i], exact, exact * 0x1p-11 + 3e-8) << x[i];
    }
    if (std::fabs(x[i]) > 5.6F) {
      EXPECT_EQ(result[i], x[i] > 0 ? 1.0F : 0.0F) << x[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Functions, VectorFormulasTest,
    ::testing::Values(Case{Op::kExp, std::exp, 0.9}, Case{Op::kExp2, std::exp2, 1.0},
                      Case{Op::kExpm1, std::expm1, 1.7}, Case{Op::kLog, std::log, 1.2},
                      Case{Op::kLog2, std::log2, 2.0}, Case{Op::kLog1p, std::log1p, 1.3},
                      Case{Op::kTanh, std::tanh, 1.9}, Case{Op::kErf, std::erf, 1.4},
                      Case{Op::kSinh, std::sinh, 2.0}, Case{Op::kCosh, std::cosh, 2.0}),
    [](const auto& test) { return std::string(name_of(test.param.op)); });

}  // namespace
}  // namespace loom::fusion
