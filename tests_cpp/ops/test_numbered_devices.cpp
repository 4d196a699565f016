// SPDX-License-Identifier: BSD-3-Clause
// Operators that take integers where others take devices, for graphs compiled ahead of time.

#include "loom/ops/numbered_devices.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "support/loom_test.h"
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace loom {
namespace {

at::Tensor ones_on(const at::Tensor& like, c10::Device device, std::optional<c10::Device> other) {
  return at::ones(like.sizes(), like.options().device(other.value_or(device)));
}

TORCH_LIBRARY(loom_test_devices, library) {
  library.def("ones_on(Tensor like, Device device, *, Device? other=None) -> Tensor", &ones_on);
  library.def("ones_on.twice(Tensor like, Device device, Device? other=None) -> Tensor", &ones_on);
}

const char* const kName = "loom_test_devices::ones_on";

class NumberedDevicesTest : public LoomTest {
 protected:
  static at::Tensor call(const std::string& name, const char* overload, c10::IValue device,
                         c10::IValue other) {
    c10::Stack stack{at::ones({3}), std::move(device), std::move(other)};
    c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload).callBoxed(stack);
    return stack.at(0).toTensor();
  }
};

TEST_F(NumberedDevicesTest, NumbersAreDevicesOfLoomAndBelowThemOtherTypes) {
  const std::string name = define_with_numbered_devices(kName);
  EXPECT_EQ(name, "loom_devices_loom_test_devices::ones_on");
  EXPECT_EQ(call(name, "", 0, c10::IValue()).device(), loom_device());
  EXPECT_EQ(call(name, "", -1, c10::IValue()).device(), c10::Device(c10::kCPU));
  EXPECT_EQ(call(name, "", 0, -1).device(), c10::Device(c10::kCPU));
  const auto meta = -1 - static_cast<int>(c10::kMeta);
  EXPECT_EQ(call(name, "", 0, meta).device(), c10::Device(c10::kMeta));
}

TEST_F(NumberedDevicesTest, AnOverloadHasItsOwn) {
  EXPECT_EQ(define_with_numbered_devices("loom_test_devices::ones_on.twice"),
            "loom_devices_loom_test_devices::ones_on.twice");
  const at::Tensor result =
      call("loom_devices_loom_test_devices::ones_on", "twice", -1, c10::IValue());
  EXPECT_EQ(result.device(), c10::Device(c10::kCPU));
}

TEST_F(NumberedDevicesTest, ItKeepsWhatTheOperatorSaysOfItsArguments) {
  const std::string name = define_with_numbered_devices(kName);
  const auto schema = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").schema();
  EXPECT_EQ(c10::toString(schema),
            "loom_devices_loom_test_devices::ones_on(Tensor like, int device, *, int? other=None)"
            " -> Tensor");
}

TEST_F(NumberedDevicesTest, ThreadsDefineItOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 100; ++j) define_with_numbered_devices(kName);
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(call(define_with_numbered_devices(kName), "", 0, c10::IValue()).device(),
            loom_device());
}

TEST_F(NumberedDevicesTest, ItsArgumentsStayWhatTheyAre) {
  const auto define = [](const char* schema) {
    torch::Library library(torch::Library::FRAGMENT, "loom_test_devices", std::nullopt, __FILE__,
                           __LINE__);
    library.def(schema);
    define_with_numbered_devices("loom_test_devices::f");
  };
  define("f(Tensor x, Device d, float f=1) -> Tensor");
  define("f(Tensor x, Device d, float f=1) -> Tensor");
  EXPECT_THAT([&] { define("f(Device d, Tensor x) -> Tensor"); },
              ::testing::ThrowsMessage<c10::Error>(
                  ::testing::HasSubstr("expected the operator loom_test_devices::f with the")));
}

TEST_F(NumberedDevicesTest, OneThatIsNotThereIsNamed) {
  EXPECT_THAT([] { define_with_numbered_devices("loom_test_devices::none"); },
              ::testing::ThrowsMessage<c10::Error>(::testing::HasSubstr(
                  "expected an operator loom_test_devices::none, which this")));
}

}  // namespace
}  // namespace loom
