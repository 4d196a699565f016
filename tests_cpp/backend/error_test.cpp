// SPDX-License-Identifier: BSD-3-Clause
// What a command throws on a worker arrives at the next synchronization with its type.
#include "loom/backend/device_state.h"
#include "loom/base/check.h"
#include "loom/device/device.h"

#include <c10/util/Exception.h>

#include "backend/support.h"
#include <stdexcept>
#include <string>

namespace loom {
namespace {

using test::thrown_text;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ErrorTest : public test::BackendTest {
 protected:
  template <class Throw>
  static void submit_failing(Throw&& thrower) {
    current_queue().submit("aten::failing", std::forward<Throw>(thrower));
  }
  template <class Exception>
  static std::string reported() {
    return thrown_text<Exception>([] { current_queue().synchronize(); });
  }
};

TEST_F(ErrorTest, PytorchExceptionsKeepTheirType) {
  submit_failing([] { TORCH_CHECK_INDEX(false, "index 7 is out of bounds"); });
  EXPECT_THAT(reported<c10::IndexError>(), HasSubstr("index 7 is out of bounds"));
  submit_failing([] { TORCH_CHECK_VALUE(false, "bad value"); });
  EXPECT_THAT(reported<c10::ValueError>(), HasSubstr("bad value"));
  submit_failing([] { TORCH_CHECK_TYPE(false, "bad type"); });
  EXPECT_THAT(reported<c10::TypeError>(), HasSubstr("bad type"));
  submit_failing([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "not there"); });
  EXPECT_THAT(reported<c10::NotImplementedError>(), HasSubstr("not there"));
  submit_failing([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "too much"); });
  EXPECT_THAT(reported<c10::OutOfMemoryError>(), HasSubstr("too much"));
  submit_failing([] { TORCH_CHECK(false, "plain"); });
  EXPECT_THAT(reported<c10::Error>(), HasSubstr("plain"));
}

TEST_F(ErrorTest, TheTextSaysWhoAndThatItWasAsynchronous) {
  submit_failing([] { TORCH_CHECK_INDEX(false, "index 7 is out of bounds"); });
  try {
    current_queue().synchronize();
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("index 7 is out of bounds"), HasSubstr("aten::failing"),
                      HasSubstr("asynchronous error"), HasSubstr("LOOM_LAUNCH_BLOCKING=1")));
  }
}

TEST_F(ErrorTest, ErrorsOfTheCoreBecomePytorchs) {
  submit_failing([] { throw Error("core trouble"); });
  EXPECT_THAT(reported<c10::Error>(), AllOf(HasSubstr("core trouble"), HasSubstr("aten::failing")));
}

TEST_F(ErrorTest, StandardExceptionsAreReportedWithTheName) {
  submit_failing([] { throw std::invalid_argument("standard trouble"); });
  EXPECT_THAT(reported<std::exception>(),
              AllOf(HasSubstr("standard trouble"), HasSubstr("aten::failing")));
}

TEST_F(ErrorTest, AnErrorIsReportedOnce) {
  submit_failing([] { TORCH_CHECK(false, "once"); });
  EXPECT_THAT(reported<c10::Error>(), HasSubstr("once"));
  current_queue().synchronize();
  bool ran = false;
  current_queue().submit("after", [&ran] { ran = true; });
  current_queue().synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(ErrorTest, DeviceSynchronizationReportsErrorsOfAnyStream) {
  stream_from_pool(false, 1).queue().submit("aten::failing",
                                            [] { TORCH_CHECK_VALUE(false, "elsewhere"); });
  EXPECT_THAT(thrown_text<c10::ValueError>([] { synchronize(1); }), HasSubstr("elsewhere"));
  synchronize(1);
}

}  // namespace
}  // namespace loom
