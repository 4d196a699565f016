// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/device_state.h"
#include "loom/backend/library.h"
#include "loom/device/device.h"

#include <gmock/gmock.h>

#include "backend/support.h"
#include <cstdlib>

namespace loom::test {

void BackendTest::synchronize_quietly(c10::DeviceIndex index) {
  try {
    device(index).synchronize();
  } catch (const std::exception&) {
    // an error that the test did not collect; the next test starts clean
  }
}

void BackendTest::set_device_zero() { set_device(0); }

}  // namespace loom::test

int main(int argc, char** argv) {
  // Two small devices, whatever the host looks like.
  setenv("LOOM_DEVICES", "2", 1);
  setenv("LOOM_THREADS", "1", 1);
  setenv("LOOM_MEMORY_LIMIT", "256M", 1);
  ::testing::InitGoogleMock(&argc, argv);
  // Processes of death tests start from the beginning, without this process's threads.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  loom::init();
  return RUN_ALL_TESTS();
}
