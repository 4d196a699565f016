// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/thread.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include <array>
#include <latch>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string>

namespace loom {
namespace {

using ::testing::ExitedWithCode;

/// Runs `body` on a loom thread and joins it.
template <class Body>
void run_on_thread(Body body, std::vector<int> cpus = {}) {
  std::latch done(1);
  const LoomThread thread(
      "loom0/test", std::move(cpus),
      [&] {
        body();
        done.count_down();
      },
      [] {});
  done.wait();
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(LoomThreadTest, CarriesItsName) {
  std::array<char, 16> name{};
  run_on_thread([&] { pthread_getname_np(pthread_self(), name.data(), name.size()); });
  EXPECT_STREQ(name.data(), "loom0/test");
}

TEST(LoomThreadTest, KnowsThatItIsLooms) {
  bool inside = false;
  run_on_thread([&] { inside = on_loom_thread(); });
  EXPECT_TRUE(inside);
  EXPECT_FALSE(on_loom_thread());
}

TEST(LoomThreadTest, RunsOnTheGivenProcessors) {
  const std::vector<int> all = allowed_cpus();
  std::vector<int> got;
  run_on_thread([&] { got = allowed_cpus(); }, {all.back()});
  EXPECT_EQ(got, std::vector<int>{all.back()});
}

TEST(LoomThreadTest, IgnoresProcessorsThatTheProcessMayNotUse) {
  std::vector<int> got;
  run_on_thread([&] { got = allowed_cpus(); }, {CPU_SETSIZE - 1});
  EXPECT_EQ(got, allowed_cpus());
}

TEST(LoomThreadTest, TakesNoSignalsOfTheProgram) {
  sigset_t set;
  run_on_thread([&] { pthread_sigmask(SIG_SETMASK, nullptr, &set); });
  EXPECT_EQ(sigismember(&set, SIGINT), 1);
  EXPECT_EQ(sigismember(&set, SIGTERM), 1);
  EXPECT_EQ(sigismember(&set, SIGSEGV), 0);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGINT), 0);
}

TEST(LoomThreadTest, DestructionCallsStopOnceAndJoins) {
  std::latch stopped(1);
  int stops = 0;
  bool ended = false;
  {
    const LoomThread thread(
        "loom0/test", {},
        [&] {
          stopped.wait();
          ended = true;
        },
        [&] {
          ++stops;
          stopped.count_down();
        });
  }
  EXPECT_EQ(stops, 1);
  EXPECT_TRUE(ended);
}

using LoomThreadChildTest = testing::ChildTest;

TEST_F(LoomThreadChildTest, TheWrapperSurroundsTheBody) {
  static std::string order;
  EXPECT_EXIT(testing::finish([] {
                set_thread_wrapper([](void (*body)(void*), void* context) {
                  order += "(";
                  body(context);
                  order += ")";
                });
                std::latch done(1);
                {
                  const LoomThread thread(
                      "loom0/test", {},
                      [&] {
                        order += "body";
                        done.count_down();
                      },
                      [] {});
                  done.wait();
                }
                EXPECT_EQ(order, "(body)");
              }),
              ExitedWithCode(0), "");
}

TEST_F(LoomThreadChildTest, StopThreadsStopsAllAndStartsNoMore) {
  EXPECT_EXIT(testing::finish([] {
                std::latch stopped(2);
                const auto body = [&] { stopped.wait(); };
                const auto stop = [&] { stopped.count_down(); };
                const LoomThread first("loom0/a", {}, body, stop);
                const LoomThread second("loom0/b", {}, body, stop);
                EXPECT_FALSE(exiting());
                stop_threads();
                EXPECT_TRUE(exiting());
                stop_threads();
                const LoomThread late("loom0/c", {}, [] { ADD_FAILURE() << "started"; }, [] {});
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
