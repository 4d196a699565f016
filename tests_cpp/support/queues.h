// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Fixtures with queues of their own, beside those of the devices.

#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include <cstdint>
#include <dirent.h>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

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
  // ThreadSanitizer starts a thread of its own beside the program's first one: that comes first.
  static std::once_flag first;
  std::call_once(first, [] { std::thread([] { pause(); }).detach(); });
  DIR* const folder = opendir("/proc/self/task");
  int threads = 0;
  while (const dirent* const entry = readdir(folder)) threads += entry->d_name[0] != '.' ? 1 : 0;
  closedir(folder);
  return threads;
}

/// Returns once all threads of this process but the calling one sleep.
inline void wait_until_others_sleep() {
  const std::string self = std::to_string(gettid());
  for (bool all_asleep = false; !all_asleep;) {
    all_asleep = true;
    DIR* const folder = opendir("/proc/self/task");
    while (const dirent* const entry = readdir(folder)) {
      const std::string thread = entry->d_name;
      if (thread[0] == '.' || thread == self) continue;
      std::ifstream file("/proc/self/task/" + thread + "/stat");
      std::string stat;
      std::getline(file, stat);
      // "<id> (<name>) <state> ..."
      const std::size_t name_end = stat.rfind(')');
      if (name_end != std::string::npos && stat[name_end + 2] != 'S') all_asleep = false;
    }
    closedir(folder);
    if (!all_asleep) std::this_thread::yield();
  }
}

}  // namespace loom::testing
