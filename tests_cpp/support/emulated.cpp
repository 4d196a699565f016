// SPDX-License-Identifier: BSD-3-Clause
// Part of the test programs that an emulator runs, LOOM_TEST_EMULATOR (its command and arguments).
//
// * Children of death tests that are started anew are started by it: the system cannot do so.
// * All threads of a test share one processor. On several, under qemu-user on x86, a stress test of
//   queues slept for ever. The likely cause, not proven: the emulator lets a load pass an earlier
//   store where both are sequentially consistent (STLR, LDAR), and wakes depend on that order.

#include <gtest/gtest.h>

#include <sched.h>
#include <sstream>
#include <string>
#include <vector>

namespace loom::testing {
namespace {

class Emulated : public ::testing::Environment {
 public:
  void SetUp() override {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &here);
    ASSERT_EQ(sched_setaffinity(0, sizeof here, &here), 0);

    std::vector<std::string> command{"/usr/bin/env"};  // which finds the emulator
    std::istringstream emulator(LOOM_TEST_EMULATOR);
    for (std::string word; emulator >> word;) command.push_back(word);
    for (const std::string& word : ::testing::internal::GetInjectableArgvs()) {
      command.push_back(word);
    }
    ::testing::internal::SetInjectableArgvs(command);
  }
};

[[maybe_unused]] const auto* const g_emulated =
    ::testing::AddGlobalTestEnvironment(new Emulated);  // gtest owns it

}  // namespace
}  // namespace loom::testing
