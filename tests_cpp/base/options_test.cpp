// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/options.h"

#include "loom/base/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include <algorithm>
#include <string>
#include <vector>

namespace loom {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Options parse(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  return parse_options(environment.data());
}

TEST(OptionsTest, EmptyEnvironmentGivesDefaults) {
  const Options options = parse({});
  EXPECT_EQ(options.devices, 0);
  EXPECT_EQ(options.threads, 0);
  EXPECT_EQ(options.memory, MemoryMode::kUnified);
  EXPECT_EQ(options.memory_limit, 0U);
  EXPECT_FALSE(options.launch_blocking);
  EXPECT_EQ(options.spin_ns, 30'000);
  EXPECT_TRUE(options.placement);
  EXPECT_EQ(options.fallback, FallbackMode::kAllow);
  EXPECT_EQ(options.simd, SimdLevel::kAmx);
  EXPECT_TRUE(options.backward_on_caller);
  EXPECT_TRUE(options.fusion_jit);
}

TEST(OptionsTest, ReadsEveryVariable) {
  const Options options =
      parse({"HOME=/", "LOOM_DEVICES=4", "LOOM_THREADS=3", "LOOM_MEMORY=isolated",
             "LOOM_MEMORY_LIMIT=1.5G", "LOOM_LAUNCH_BLOCKING=1", "LOOM_SPIN_US=7",
             "LOOM_PLACEMENT=0", "LOOM_FALLBACK=error", "LOOM_SIMD=avx2", "LOOM_FUSION_JIT=0",
             "LOOM_BACKWARD_THREAD=device", "LOOM_HOST_ID=left"});
  EXPECT_EQ(options.devices, 4);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.memory, MemoryMode::kIsolated);
  EXPECT_EQ(options.memory_limit, std::size_t{1536} << 20);
  EXPECT_TRUE(options.launch_blocking);
  EXPECT_EQ(options.spin_ns, 7'000);
  EXPECT_FALSE(options.placement);
  EXPECT_EQ(options.fallback, FallbackMode::kError);
  EXPECT_EQ(options.simd, SimdLevel::kAvx2);
  EXPECT_FALSE(options.backward_on_caller);
  EXPECT_FALSE(options.fusion_jit);
  EXPECT_EQ(options.host_id, "left");
}

TEST(OptionsTest, UnderTorchrunEachRankOfTheHostHasADevice) {
  EXPECT_EQ(parse({"LOCAL_WORLD_SIZE=3"}).devices, 3);
  EXPECT_EQ(parse({"LOOM_DEVICES=2", "LOCAL_WORLD_SIZE=3"}).devices, 2);
  EXPECT_EQ(parse({"LOCAL_WORLD_SIZE=100"}).devices, 0);
  EXPECT_EQ(parse({"LOCAL_WORLD_SIZE="}).devices, 0);
}

TEST(OptionsTest, KnowsEveryInstructionSet) {
  EXPECT_EQ(parse({"LOOM_SIMD=scalar"}).simd, SimdLevel::kScalar);
  EXPECT_EQ(parse({"LOOM_SIMD=avx512"}).simd, SimdLevel::kAvx512);
  EXPECT_EQ(parse({"LOOM_SIMD=avx512_bf16"}).simd, SimdLevel::kAvx512Bf16);
  EXPECT_EQ(parse({"LOOM_SIMD=amx"}).simd, SimdLevel::kAmx);
}

TEST(OptionsTest, IgnoresVariablesOfOthers) { EXPECT_NO_THROW(parse({"LOOMX=1", "LOO=2", "="})); }

TEST(OptionsTest, LetsVariablesOfTheBuildAndTheTestsPass) {
  EXPECT_NO_THROW(
      parse({"LOOM_BUILD_PYTHON=ON", "LOOM_CHECKS=ON", "LOOM_CORE_ONLY=ON", "LOOM_LOCK_CHECKS=ON",
             "LOOM_SANITIZER=thread", "LOOM_STRESS_SECONDS=60", "LOOM_TEST_SEED=1"}));
}

struct Size {
  const char* text;
  std::size_t bytes;
};

class OptionsSizeTest : public ::testing::TestWithParam<Size> {};

TEST_P(OptionsSizeTest, Parses) {
  const std::string variable = std::string("LOOM_MEMORY_LIMIT=") + GetParam().text;
  EXPECT_EQ(parse({variable.c_str()}).memory_limit, GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(Sizes, OptionsSizeTest,
                         ::testing::Values(Size{"2097152", 2 << 20}, Size{"2M", 2 << 20},
                                           Size{"2048K", 2 << 20}, Size{"512m", 512 << 20},
                                           Size{"8G", std::size_t{8} << 30},
                                           Size{"0.5g", std::size_t{1} << 29},
                                           Size{"2T", std::size_t{2} << 40}));

struct Nonsense {
  const char* name;
  const char* value;
  const char* expected;
};

class OptionsNonsenseTest : public ::testing::TestWithParam<Nonsense> {};

TEST_P(OptionsNonsenseTest, NamesVariableValueAndWhatWasExpected) {
  const auto& [name, value, expected] = GetParam();
  const std::string variable = std::string(name) + "=" + value;
  EXPECT_THAT([&] { parse({variable.c_str()}); },
              ThrowsMessage<Error>(AllOf(HasSubstr(name), HasSubstr(expected),
                                         HasSubstr("got '" + std::string(value) + "'"))));
}

INSTANTIATE_TEST_SUITE_P(
    Values, OptionsNonsenseTest,
    ::testing::Values(Nonsense{"LOOM_DEVICES", "", "a whole number from 1 to 16"},
                      Nonsense{"LOOM_DEVICES", "0", "a whole number from 1 to 16"},
                      Nonsense{"LOOM_DEVICES", "17", "a whole number from 1 to 16"},
                      Nonsense{"LOOM_DEVICES", "-1", "a whole number"},
                      Nonsense{"LOOM_DEVICES", "2x", "a whole number"},
                      Nonsense{"LOOM_DEVICES", " 2", "a whole number"},
                      Nonsense{"LOOM_THREADS", "two", "a whole number from 1 to 1024"},
                      Nonsense{"LOOM_THREADS", "99999999999999999999", "a whole number"},
                      Nonsense{"LOOM_MEMORY", "Unified", "'unified' or 'isolated'"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "", "a number of bytes from 2M"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "1M", "a number of bytes from 2M"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "-8G", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "8GB", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "8P", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "8 G", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "nan", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "inf", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "1e300", "a number of bytes"},
                      Nonsense{"LOOM_MEMORY_LIMIT", "17T", "a number of bytes"},
                      Nonsense{"LOOM_LAUNCH_BLOCKING", "yes", "'0' or '1'"},
                      Nonsense{"LOOM_SPIN_US", "1.5", "a whole number from 0 to 1000000"},
                      Nonsense{"LOOM_FALLBACK", "deny", "'allow', 'warn' or 'error'"},
                      Nonsense{"LOOM_BACKWARD_THREAD", "cpu", "'caller' or 'device'"},
                      Nonsense{"LOOM_SIMD", "sse4",
                               "'scalar', 'neon', 'avx2', 'avx512', 'avx512_bf16' or 'amx'"},
                      Nonsense{"LOOM_FUSION_JIT", "off", "'0' or '1'"},
                      Nonsense{"LOOM_HOST_ID", "", "a name"}));

TEST(OptionsTest, MisspeltNameIsAnErrorThatSuggestsTheNearest) {
  EXPECT_THAT([] { parse({"LOOM_DEVICE=2"}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("LOOM_DEVICE: "), HasSubstr("LOOM_DEVICES"))));
  EXPECT_THAT([] { parse({"LOOM_LAUNCHBLOCKING=1"}); },
              ThrowsMessage<Error>(HasSubstr("did you mean LOOM_LAUNCH_BLOCKING")));
}

TEST(OptionsTest, ErrorDoesNotRepeatTheValueOfAMisspeltName) {
  EXPECT_THAT([] { parse({"LOOM_MEMRY=secret"}); },
              ThrowsMessage<Error>(::testing::Not(HasSubstr("secret"))));
}

TEST(OptionsTest, NamesOfOthersAreLeftAlone) {
  EXPECT_NO_THROW(parse({"LOOM_API_KEY=x", "LOOM_VISIBLE_DEVICES=0", "LOOM_=", "LOOMING=1"}));
}

TEST(OptionsTest, TableListsEveryVariableOnce) {
  std::vector<std::string_view> names;
  for (const OptionInfo& row : option_table()) {
    names.push_back(row.name);
    EXPECT_FALSE(row.default_value.empty()) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(names.size(), 14U);
}

using OptionsChildTest = testing::ChildTest;

TEST_F(OptionsChildTest, ABadVariableThrowsAtEveryCall) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_DEVICES", "many", 1);
                EXPECT_THROW((void)options(), Error);
                EXPECT_THROW((void)options(), Error);
              }),
              ExitedWithCode(0), "");
}

TEST_F(OptionsChildTest, TheEnvironmentIsReadOnce) {
  EXPECT_EXIT(testing::finish([] {
                setenv("LOOM_THREADS", "5", 1);
                EXPECT_EQ(options().threads, 5);
                setenv("LOOM_THREADS", "6", 1);
                EXPECT_EQ(options().threads, 5);
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
