// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Fixtures with queues of their own, beside those of the devices.

#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include <cstdint>
#include <dirent.h>

namespace loom::testing {

/// Two queues on one core each.
class QueueFixture : public ::testing::Test {
 protected:
  static void nothing() {}

  Cores cores_{1};
  Queue queue_{QueueId{0, 0, 0}, cores_};
  Queue other_{QueueId{0, -1, 3}, cores_};
};

/// The threads of this process.
inline int count_threads() {
  DIR* const folder = opendir("/proc/self/task");
  int threads = 0;
  while (const dirent* const entry = readdir(folder)) threads += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return threads;
}

}  // namespace loom::testing
