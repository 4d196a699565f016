// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/imports.h"

#include <gtest/gtest.h>

#include <array>
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <string>
#include <string_view>

namespace loom {
namespace {

// A function that nobody else in the process calls: what is redirected stays so.
constexpr const char* kSymbol = "gnu_get_libc_version";

const char* our_version() { return "ours"; }

const std::array kRedirects{ImportRedirect{kSymbol, reinterpret_cast<void*>(&our_version)}};

class ImportsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_redirect_imports()) GTEST_SKIP() << "import tables of this processor are not known";
  }
};

TEST_F(ImportsTest, SkippedLibrariesKeepTheirImports) {
  constexpr std::array<std::string_view, 1> kAll{""};
  const RedirectedImports done = redirect_imports(kRedirects, kAll);
  EXPECT_EQ(done.entries, 0U);
  EXPECT_EQ(done.problem, "");
  EXPECT_NE(std::string(gnu_get_libc_version()), "ours");
}

TEST_F(ImportsTest, RedirectedImportCallsTheNewFunction) {
  const RedirectedImports done = redirect_imports(kRedirects, {});
  EXPECT_EQ(done.problem, "");
  EXPECT_GE(done.entries, 1U);
  EXPECT_EQ(std::string(gnu_get_libc_version()), "ours");
}

TEST_F(ImportsTest, ExportedFunctionIsStillFoundByName) {
  ASSERT_EQ(redirect_imports(kRedirects, {}).problem, "");
  const auto found = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, kSymbol));
  ASSERT_NE(found, nullptr);
  EXPECT_NE(std::string(found()), "ours");
}

TEST_F(ImportsTest, RedirectingAgainFindsTheSameEntries) {
  const RedirectedImports first = redirect_imports(kRedirects, {});
  const RedirectedImports second = redirect_imports(kRedirects, {});
  EXPECT_EQ(first.entries, second.entries);
}

TEST(LoadedLibrariesTest, CountGrowsWithALibraryThatIsLoaded) {
  const auto before = loaded_libraries();
  EXPECT_EQ(loaded_libraries(), before);
  void* const library = dlopen("libthread_db.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << dlerror();
  EXPECT_GT(loaded_libraries(), before);
  dlclose(library);
}

}  // namespace
}  // namespace loom
