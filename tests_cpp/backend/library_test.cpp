// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/library.h"

#include "loom/backend/device_state.h"
#include "loom/loom.h"

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include "backend/support.h"

namespace loom {
namespace {

using LibraryTest = test::BackendTest;

TEST_F(LibraryTest, TheDeviceTypeIsNamedLoom) {
  EXPECT_EQ(c10::Device("loom:1"), to_c10(1));
  EXPECT_EQ(to_c10(1).str(), "loom:1");
}

TEST_F(LibraryTest, InitMayBeRepeatedAndFollowARename) {
  init();
  c10::register_privateuse1_backend("loom");
  init();
  check_registered();
  EXPECT_EQ(c10::get_privateuse1_backend(), "loom");
}

TEST_F(LibraryTest, ThePublicHeaderIsEnoughForAProgram) {
  set_device(1);
  manual_seed_all(3);
  const Stream stream = stream_from_pool(true);
  const StreamGuard guard(stream);
  Event event;
  event.record();
  event.synchronize();
  synchronize();
  empty_cache();
  EXPECT_LE(memory_allocated(), memory_reserved());
  EXPECT_LE(mem_get_info().first, mem_get_info().second);
}

}  // namespace
}  // namespace loom
