// SPDX-License-Identifier: BSD-3-Clause
// Warnings of kernels: on stderr, or kept for who waits.
#include "loom/backend/kernel_warnings.h"

#include "loom/device/cores.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "backend/support.h"
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace loom {
namespace {

std::vector<std::string> g_given;
bool g_throws = false;

void give(const c10::Warning& warning) {
  g_given.push_back(warning.msg());
  if (g_throws) throw std::runtime_error(warning.msg());
}

class KernelWarningsTest : public test::BackendTest {
 protected:
  void SetUp() override {
    test::BackendTest::SetUp();
    g_given.clear();
    g_throws = false;
    set_warning_giver(&give);
  }
  void TearDown() override { set_warning_giver(nullptr); }

  static void submit_warning(std::string text) {
    current_queue().submit("warn", [text = std::move(text)] { TORCH_WARN(text); });
  }
};

using Texts = std::vector<std::string>;

TEST_F(KernelWarningsTest, GoToStderrWithoutAGiver) {
  set_warning_giver(nullptr);
  ::testing::internal::CaptureStderr();
  submit_warning("as ever");
  current_queue().synchronize();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("as ever"), std::string::npos);
  EXPECT_EQ(g_given, Texts{});
}

TEST_F(KernelWarningsTest, AreGivenByTheNextWaitInTheirOrderEachOnce) {
  for (const char* const text : {"first", "second", "first"}) submit_warning(text);
  current_queue().synchronize();
  EXPECT_EQ(g_given, (Texts{"first", "second"}));
  submit_warning("first");
  current_queue().synchronize();
  EXPECT_EQ(g_given, (Texts{"first", "second", "first"}));
}

TEST_F(KernelWarningsTest, ThoseAfterOneThatThrowsStayForTheNextWait) {
  g_throws = true;
  submit_warning("first");
  submit_warning("second");
  EXPECT_THROW(current_queue().synchronize(), std::runtime_error);
  g_throws = false;
  current_queue().synchronize();
  EXPECT_EQ(g_given, (Texts{"first", "second"}));
}

TEST_F(KernelWarningsTest, ComeFromTheBlocksOfAGrid) {
  current_queue().submit("grid", [] {
    Queue::current()->cores().run(64, [](std::int64_t block) { TORCH_WARN("block ", block % 2); });
  });
  current_queue().synchronize();
  std::sort(g_given.begin(), g_given.end());
  EXPECT_EQ(g_given, (Texts{"block 0", "block 1"}));
}

TEST_F(KernelWarningsTest, AreBounded) {
  for (int i = 0; i < 100; ++i) submit_warning(std::to_string(i));
  current_queue().synchronize();
  ASSERT_EQ(g_given.size(), 65U);
  EXPECT_EQ(g_given.back(), "loom: and 36 more warnings of kernels");
}

TEST_F(KernelWarningsTest, GoToTheHandlerOfTheThreadThatWaits) {
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
    Texts texts;
  } handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  submit_warning("mine");
  current_queue().synchronize();
  EXPECT_EQ(handler.texts, Texts{"mine"});
  EXPECT_EQ(g_given, Texts{});
}

}  // namespace
}  // namespace loom
