// SPDX-License-Identifier: BSD-3-Clause
// The C interface of generated kernels: arguments, order, blocks, and the memory of a command.

#include "loom/ops/compiled_kernel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "support/loom_test.h"
#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace loom {
namespace {

constexpr std::int64_t kCount = 1000;

LoomKernelArgument memory(const at::Tensor& tensor, LoomKernelAccess access) {
  return {reinterpret_cast<std::uintptr_t>(tensor.data_ptr()), tensor.nbytes(), access};
}
LoomKernelArgument number(std::uint64_t value) { return {value, 0, kLoomKernelValue}; }

float* floats(const LoomKernelArgument& argument) {
  return reinterpret_cast<float*>(static_cast<std::uintptr_t>(argument.value));
}

// to[i] = from[i] + number, in blocks of 100.
void add_number(const LoomKernelGrid* grid, const LoomKernelArgument* arguments) {
  loom_kernel_run_blocks(
      grid, kCount / 100,
      [](void* context, std::int64_t block) {
        const auto* given = static_cast<const LoomKernelArgument*>(context);
        for (std::int64_t i = 100 * block; i < 100 * (block + 1); ++i) {
          floats(given[0])[i] = floats(given[1])[i] + static_cast<float>(given[2].value);
        }
      },
      const_cast<LoomKernelArgument*>(arguments));
}

void fail(const LoomKernelGrid* grid, const LoomKernelArgument*) {
  loom_kernel_run_blocks(
      grid, 3,
      [](void*, std::int64_t block) {
        if (block == 1) throw std::runtime_error("a block fails");
      },
      nullptr);
}

class CompiledKernelTest : public LoomTest {
 protected:
  static at::Tensor numbers() { return at::arange(kCount, at::kFloat).to(loom_device()); }

  template <class... Arguments>
  static void launch(const char* name, LoomKernelBody body, Arguments... arguments) {
    const std::array<LoomKernelArgument, sizeof...(Arguments)> all{arguments...};
    loom_kernel_launch(0, name, body, all.data(), static_cast<std::int64_t>(all.size()));
  }
  static void launch_add(const at::Tensor& to, const at::Tensor& from, std::uint64_t value) {
    launch("test::add_number", &add_number, memory(to, kLoomKernelReplace),
           memory(from, kLoomKernelRead), number(value));
  }
};

TEST_F(CompiledKernelTest, BlocksSeeTheArgumentsOfTheLaunch) {
  const at::Tensor to = at::empty({kCount}, options());
  launch_add(to, numbers(), 7);
  EXPECT_TRUE(at::equal(to.cpu(), at::arange(kCount, at::kFloat) + 7));
}

TEST_F(CompiledKernelTest, ItReturnsBeforeItRunsAndKeepsTheOrderOfItsStream) {
  const at::Tensor from = numbers();
  const at::Tensor to = at::empty({kCount}, options());
  {
    QueueHold hold(current_queue(0));
    launch_add(to, from, 1);
    launch_add(to, to, 2);
    EXPECT_FALSE(current_queue(0).idle());
  }
  EXPECT_TRUE(at::equal(to.cpu(), at::arange(kCount, at::kFloat) + 3));
}

TEST_F(CompiledKernelTest, MoreArgumentsThanAreKeptInPlaceArrive) {
  static std::atomic<std::uint64_t> sum;
  sum = 0;
  std::vector<LoomKernelArgument> many;
  for (std::uint64_t i = 1; i <= 100; ++i) many.push_back(number(i));
  loom_kernel_launch(
      0, "test::sum",
      [](const LoomKernelGrid*, const LoomKernelArgument* arguments) {
        for (int i = 0; i < 100; ++i) sum += arguments[i].value;
      },
      many.data(), 100);
  current_queue(0).synchronize();
  EXPECT_EQ(sum, 5050U);
}

TEST_F(CompiledKernelTest, AFailureNamesTheKernelAndStaysWithWhatItShouldHaveWritten) {
  const at::Tensor failed = at::empty({kCount}, options());
  const at::Tensor after = at::empty({kCount}, options());
  const at::Tensor healthy = at::empty({kCount}, options());
  launch("test::fail", &fail, memory(failed, kLoomKernelReplace));
  launch_add(after, failed, 1);
  launch_add(healthy, numbers(), 1);
  try {
    (void)after.cpu();
    ADD_FAILURE() << "expected the error of the kernel that the values depend on";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("test::fail"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(at::equal(healthy.cpu(), at::arange(kCount, at::kFloat) + 1));
  launch_add(failed, healthy, 1);  // every byte is written: the values are others
  EXPECT_TRUE(at::equal(failed.cpu(), at::arange(kCount, at::kFloat) + 2));
}

TEST_F(CompiledKernelTest, ADeviceThatDoesNotExistIsRefused) {
  EXPECT_ANY_THROW(loom_kernel_launch(99, "test::fail", &fail, nullptr, 0));
}

}  // namespace
}  // namespace loom
