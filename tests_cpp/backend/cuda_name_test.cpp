// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/cuda_name.h"

#include "loom/backend/device_state.h"
#include "loom/base/imports.h"

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>

namespace loom {
namespace {

class CudaNameTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_redirect_imports()) GTEST_SKIP() << "import tables of this processor are not known";
    cuda_name::redirect();
    cuda_name::set_on(true);
  }
  void TearDown() override { cuda_name::set_on(false); }
};

TEST_F(CudaNameTest, StringMeansALoomDevice) {
  EXPECT_EQ(c10::Device("cuda:1"), to_c10(1));
  EXPECT_EQ(c10::Device("cuda"), c10::Device(kDeviceType));
}

TEST_F(CudaNameTest, LoomDevicePrintsAsCuda) {
  EXPECT_EQ(to_c10(1).str(), "cuda:1");
  EXPECT_EQ(c10::DeviceTypeName(kDeviceType), "CUDA");
}

TEST_F(CudaNameTest, OwnNameIsStillUnderstood) {
  const std::string own = c10::get_privateuse1_backend();
  EXPECT_EQ(c10::Device("privateuseone:1"), to_c10(1));
  cuda_name::set_on(false);
  EXPECT_EQ(to_c10(0).str(), own + ":0");
}

TEST_F(CudaNameTest, OtherDevicesKeepTheirNames) {
  EXPECT_TRUE(c10::Device("cpu").is_cpu());
  EXPECT_EQ(c10::Device("meta").str(), "meta");
}

TEST_F(CudaNameTest, BadIndexIsRefusedInTheProgramsWords) {
  try {
    (void)c10::Device("cuda:01");
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("'cuda:01'"), std::string::npos) << error.what();
  }
}

TEST_F(CudaNameTest, OffMeansThatCudaIsCuda) {
  cuda_name::set_on(false);
  EXPECT_TRUE(c10::Device("cuda:1").is_cuda());
  EXPECT_NE(to_c10(1).str(), "cuda:1");
}

TEST_F(CudaNameTest, HushChangesWhatItsThreadPrints) {
  const cuda_name::Hush hush;
  EXPECT_NE(to_c10(0).str(), "cuda:0");
  std::string elsewhere;
  std::thread([&] { elsewhere = to_c10(0).str(); }).join();
  EXPECT_EQ(elsewhere, "cuda:0");
}

TEST_F(CudaNameTest, HushLeavesStringsWithTheirMeaning) {
  const cuda_name::Hush hush;
  EXPECT_EQ(c10::Device("cuda:1"), to_c10(1));
}

TEST_F(CudaNameTest, HushesNest) {
  std::optional<cuda_name::Hush> outer(std::in_place);
  {
    const cuda_name::Hush inner;
    EXPECT_NE(to_c10(0).str(), "cuda:0");
  }
  EXPECT_NE(to_c10(0).str(), "cuda:0");
  outer.reset();
  EXPECT_EQ(to_c10(0).str(), "cuda:0");
}

TEST_F(CudaNameTest, RedirectingAgainChangesNothing) {
  const auto entries = cuda_name::redirect();
  EXPECT_GT(entries, 0U);
  EXPECT_EQ(cuda_name::redirect(), entries);
}

}  // namespace
}  // namespace loom
