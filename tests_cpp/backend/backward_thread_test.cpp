// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/backward_thread.h"

#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"

#include <ATen/ops/ones.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "backend/support.h"
#include <thread>
#include <vector>

namespace loom {
namespace {

using BackwardThreadTest = test::BackendTest;

c10::AutogradState& autograd() { return c10::AutogradState::get_tls_state(); }

/// The threads that ran the hook of one backward pass, called here.
std::vector<std::thread::id> threads_of_a_backward() {
  std::vector<std::thread::id> threads;
  const at::Tensor x = at::ones({3}, at::TensorOptions().device(kDeviceType));
  x.requires_grad_();
  const at::Tensor y = x.mul(2);
  y.register_hook([&](const at::Tensor&) { threads.push_back(std::this_thread::get_id()); });
  y.mul(3).sum().backward();
  return threads;
}

TEST_F(BackwardThreadTest, IsTheCallers) {
  test::on_other_thread(
      [] { EXPECT_EQ(threads_of_a_backward(), std::vector{std::this_thread::get_id()}); });
}

TEST_F(BackwardThreadTest, OfAThreadWithoutLoomIsLeftAlone) {
  test::on_other_thread([] { EXPECT_TRUE(autograd().get_multithreading_enabled()); });
}

TEST_F(BackwardThreadTest, IsChosenAtTheFirstUseOnly) {
  test::on_other_thread([] {
    static_cast<void>(current_stream(0));
    EXPECT_FALSE(autograd().get_multithreading_enabled());
    autograd().set_multithreading_enabled(true);
    static_cast<void>(current_stream(1));
    EXPECT_NE(threads_of_a_backward(), std::vector{std::this_thread::get_id()});
    EXPECT_TRUE(autograd().get_multithreading_enabled());
  });
}

TEST_F(BackwardThreadTest, StaysAsItsUserHasChosenBefore) {
  test::on_other_thread([] {
    keep_backward_thread();
    static_cast<void>(current_stream());
    EXPECT_TRUE(autograd().get_multithreading_enabled());
  });
}

}  // namespace
}  // namespace loom
