// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Fixture of the tests of the torch skin: the renamed backend and its first device, and a way to
// hold a queue still.

#include "loom/backend/library.h"
#include "loom/backend/stream.h"
#include "loom/device/queue.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <gtest/gtest.h>

#include <future>

namespace loom {

class LoomTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { init(); }

  static c10::Device loom_device(c10::DeviceIndex index = 0) {
    return c10::Device(c10::kPrivateUse1, index);
  }
  static at::TensorOptions options(c10::ScalarType dtype = at::kFloat) {
    return at::TensorOptions().dtype(dtype).device(loom_device());
  }
};

/// While it lives, commands submitted to the queue after it wait.
class QueueHold {
 public:
  explicit QueueHold(Queue& queue) {
    queue.submit("hold", [opened = gate_.get_future().share()] { opened.wait(); });
  }
  ~QueueHold() { gate_.set_value(); }
  QueueHold(const QueueHold&) = delete;
  QueueHold& operator=(const QueueHold&) = delete;

 private:
  std::promise<void> gate_;
};

}  // namespace loom
