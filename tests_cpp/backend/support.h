// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Verbs that the tests of the torch skin share. Outcomes are decided by gates, never by time.

#include "loom/backend/allocator.h"
#include "loom/backend/stream.h"
#include "loom/device/address.h"
#include "loom/device/queue.h"

#include <c10/core/Allocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gate.h"
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace loom::test {

/// Keeps a queue busy from construction until open() or destruction.
class Hold {
 public:
  explicit Hold(Queue& queue) {
    queue.submit("hold", [gate = gate_] { gate->pass(); });
  }
  ~Hold() { open(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void open() { gate_->open(); }

 private:
  const std::shared_ptr<testing::Gate> gate_ = std::make_shared<testing::Gate>();
};

/// Restores the thread's device and streams, and waits for both devices.
class BackendTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (c10::DeviceIndex index = 0; index < 2; ++index) {
      set_current_stream(default_stream(index));
      synchronize_quietly(index);
    }
    set_device_zero();
  }

  static void synchronize_quietly(c10::DeviceIndex index);
  static void set_device_zero();
};

/// The text of what `action` throws, or "nothing was thrown".
template <class Exception = std::exception>
std::string thrown_text(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Runs `action` on a thread of its own and waits for it.
inline void on_other_thread(const std::function<void()>& action) { std::thread(action).join(); }

/// Fills device memory on a queue.
inline void fill(Queue& queue, void* address, int value, std::size_t bytes) {
  queue.submit("fill", [=] { std::memset(host_address(address), value, bytes); });
}

/// True when all bytes have the value, as seen after everything queued so far.
inline bool holds(Queue& queue, const void* address, int value, std::size_t bytes) {
  queue.synchronize();
  const auto* data = static_cast<const unsigned char*>(host_address(address));
  for (std::size_t i = 0; i < bytes; ++i) {
    if (data[i] != static_cast<unsigned char>(value)) return false;
  }
  return true;
}

}  // namespace loom::test
