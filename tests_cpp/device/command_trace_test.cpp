// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/command_trace.h"

#include "loom/base/futex.h"
#include "loom/device/address.h"
#include "loom/device/arena.h"
#include "loom/device/device.h"
#include "loom/device/event.h"
#include "loom/device/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace loom {
namespace {

using ::testing::ElementsAre;
using ::testing::ExitedWithCode;
using testing::Gate;
using Result = CommandTrace::Result;

std::vector<std::string> names(const Result& result) {
  std::vector<std::string> found;
  for (const CommandSpan& span : result.spans) found.emplace_back(span.name);
  return found;
}

class CommandTraceTest : public testing::QueueFixture {
 protected:
  void TearDown() override {
    (void)trace_.stop();
    CommandTrace::set_context({});
  }

  CommandTrace& trace_ = CommandTrace::instance();
};

TEST_F(CommandTraceTest, HoldsWhatWasSubmittedBetweenStartAndStop) {
  queue_.submit("before", nothing);
  trace_.start();
  queue_.submit("first", nothing);
  other_.submit("second", nothing);
  const Result result = trace_.stop();
  queue_.submit("after", nothing);
  EXPECT_THAT(names(result), ElementsAre("first", "second"));
  EXPECT_EQ(result.spans[0].queue, queue_.id());
  EXPECT_EQ(result.spans[1].queue, other_.id());
  EXPECT_EQ(result.dropped, 0U);
  EXPECT_EQ(result.unfinished, 0U);
}

TEST_F(CommandTraceTest, WithoutAStartThereIsNothing) {
  queue_.submit("nothing", nothing);
  EXPECT_TRUE(trace_.stop().spans.empty());
  EXPECT_EQ(trace_.begin("nothing", queue_), nullptr);
}

TEST_F(CommandTraceTest, ASpanBeginsAfterItsLaunchBeganAndCommandsOfAQueueDoNotOverlap) {
  const std::int64_t before = now_ns();
  trace_.start();
  for (int i = 0; i < 100; ++i) queue_.submit("nothing", nothing);
  const Result result = trace_.stop();
  const std::int64_t after = now_ns();
  ASSERT_EQ(result.spans.size(), 100U);
  std::int64_t previous = before;
  for (const CommandSpan& span : result.spans) {
    EXPECT_LE(before, span.launch_begin_ns);
    EXPECT_LE(span.launch_begin_ns, span.launch_end_ns);
    EXPECT_LE(span.launch_begin_ns, span.started_ns);
    EXPECT_LE(previous, span.started_ns);
    EXPECT_LE(span.started_ns, span.ended_ns);
    EXPECT_LE(span.ended_ns, after);
    previous = span.ended_ns;
  }
}

TEST_F(CommandTraceTest, TimeBetweenSubmissionAndStartIsNotTheCommands) {
  Gate gate;
  submit_gate(queue_, gate);
  trace_.start();
  queue_.submit("held", nothing);
  const std::int64_t opened = now_ns();
  gate.open();
  const Result result = trace_.stop();
  ASSERT_EQ(result.spans.size(), 1U);
  EXPECT_LT(result.spans[0].launch_begin_ns, opened);
  EXPECT_GE(result.spans[0].started_ns, opened);
}

TEST_F(CommandTraceTest, StopWaitsForWorkInFlight) {
  Gate gate;
  trace_.start();
  submit_gate(queue_, gate);
  gate.wait_for_arrivals();
  const std::jthread opener([&] { gate.open(); });
  EXPECT_THAT(names(trace_.stop()), ElementsAre("gate"));
}

TEST_F(CommandTraceTest, StopLeavesErrorsToTheirQueue) {
  trace_.start();
  queue_.submit("fail", [] { throw std::runtime_error("no"); });
  EXPECT_THAT(names(trace_.stop()), ElementsAre("fail"));
  EXPECT_ANY_THROW(queue_.synchronize());
}

TEST_F(CommandTraceTest, TheContextIsThatOfTheLaunchingThread) {
  trace_.start();
  CommandTrace::set_context({1, 7, 3});
  queue_.submit("mine", nothing);
  std::jthread([&] { queue_.submit("its", nothing); }).join();
  const Result result = trace_.stop();
  ASSERT_THAT(names(result), ElementsAre("mine", "its"));
  EXPECT_EQ(result.spans[0].context.session, 1U);
  EXPECT_EQ(result.spans[0].context.operation, 7U);
  EXPECT_EQ(result.spans[0].context.annotation, 3U);
  EXPECT_EQ(result.spans[0].thread, ::gettid());
  EXPECT_EQ(result.spans[1].context.operation, 0U);
  EXPECT_NE(result.spans[1].thread, result.spans[0].thread);
}

TEST_F(CommandTraceTest, AFullStoreDropsCommandsThatRunAllTheSame) {
  std::atomic<int> ran{0};
  trace_.start(/*capacity=*/3);
  for (int i = 0; i < 10; ++i) queue_.submit("count", [&] { ran.fetch_add(1); });
  const Result result = trace_.stop();
  queue_.synchronize();
  EXPECT_EQ(result.spans.size(), 3U);
  EXPECT_EQ(result.dropped, 7U);
  EXPECT_EQ(ran.load(), 10);
}

TEST_F(CommandTraceTest, ASecondTraceHoldsNothingOfTheFirst) {
  trace_.start();
  queue_.submit("first", nothing);
  EXPECT_THAT(names(trace_.stop()), ElementsAre("first"));
  trace_.start();
  queue_.submit("second", nothing);
  EXPECT_THAT(names(trace_.stop()), ElementsAre("second"));
}

TEST_F(CommandTraceTest, ARestartForgetsWhatIsInFlight) {
  Gate gate;
  trace_.start();
  submit_gate(queue_, gate);
  queue_.submit("old", nothing);
  trace_.start();
  queue_.submit("new", nothing);
  gate.open();
  EXPECT_THAT(names(trace_.stop()), ElementsAre("new"));
  queue_.synchronize();
}

TEST_F(CommandTraceTest, ACommandMayEndTheTraceThatItIsIn) {
  Result result;
  trace_.start();
  queue_.submit("first", nothing);
  queue_.submit("end", [&] { result = trace_.stop(); });
  queue_.synchronize();
  EXPECT_THAT(names(result), ElementsAre("first"));
  EXPECT_EQ(result.unfinished, 1U);
}

struct Touch {
  const void* from;
  void* to;
  void operator()() const {}
  void accesses(AccessList& list) const {
    list.push_back({from, 100, AccessKind::kRead});
    list.push_back({to, 40, AccessKind::kReplace});
  }
};

TEST_F(CommandTraceTest, BytesAreThoseOfDeviceMemory) {
  const char on_host[100] = {};
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  void* const on_device = device(0).arena().map_segment(kBytes);
  trace_.start();
  queue_.submit("upload", Touch{on_host, on_device});
  queue_.submit("move", Touch{on_device, on_device});
  const Result result = trace_.stop();
  ASSERT_EQ(result.spans.size(), 2U);
  EXPECT_EQ(result.spans[0].bytes_read, 0U);
  EXPECT_EQ(result.spans[0].bytes_written, 40U);
  EXPECT_EQ(result.spans[1].bytes_read, 100U);
  EXPECT_EQ(result.spans[1].bytes_written, 40U);
  device(0).arena().unmap_segment(on_device, kBytes);
}

TEST_F(CommandTraceTest, ThreadsThatLaunchWhileTracesComeAndGo) {
  constexpr int kThreads = 4;
  constexpr int kCommands = 2000;
  std::atomic<int> launching{kThreads};
  std::size_t seen = 0;
  testing::on_threads(kThreads + 1, [&](int thread) {
    if (thread < kThreads) {
      CommandTrace::set_context({1, static_cast<std::uint64_t>(thread) + 1, 0});
      Queue& queue = thread % 2 == 0 ? queue_ : other_;
      for (int i = 0; i < kCommands; ++i) queue.submit("busy", nothing);
      launching.fetch_sub(1);
      return;
    }
    do {
      trace_.start();
      std::this_thread::yield();
      const Result result = trace_.stop();
      for (const CommandSpan& span : result.spans) {
        EXPECT_STREQ(span.name, "busy");
        EXPECT_LE(span.started_ns, span.ended_ns);
        EXPECT_GE(span.context.operation, 1U);
      }
      seen += result.spans.size() + result.unfinished;
    } while (launching.load() > 0);
  });
  queue_.synchronize();
  other_.synchronize();
  EXPECT_LE(seen, std::size_t{kThreads} * kCommands);
}

using CommandTraceProcessTest = testing::ChildTest;

TEST_F(CommandTraceProcessTest, AProcessMayExitWhileItTraces) {
  EXPECT_EXIT(testing::finish([] {
                CommandTrace::instance().start();
                Queue& queue = device(0).default_queue();
                queue.submit("until exit", [] {
                  while (!exiting()) std::this_thread::yield();
                });
                for (int i = 0; i < 1000; ++i) queue.submit("queued", [] {});
              }),
              ExitedWithCode(0), "");
}

TEST_F(CommandTraceProcessTest, StoppingWhileTheProcessExitsDoesNotWait) {
  EXPECT_EXIT(testing::finish([] {
                CommandTrace::instance().start();
                std::atexit([] {
                  const Result result = CommandTrace::instance().stop();
                  if (result.spans.size() != 1 || result.unfinished == 0) std::_Exit(11);
                });
                static std::atomic<bool> running{false};
                Queue& queue = device(0).default_queue();
                queue.submit("until exit", [] {
                  running.store(true);
                  while (!exiting()) std::this_thread::yield();
                });
                for (int i = 0; i < 1000; ++i) queue.submit("queued", [] {});
                while (!running.load()) std::this_thread::yield();
              }),
              ExitedWithCode(0), "");
}

TEST_F(CommandTraceProcessTest, AForkedChildMayStopItsParentsTrace) {
  EXPECT_EXIT(testing::finish([] {
                CommandTrace::instance().start();
                Queue& queue = device(0).default_queue();
                testing::Gate gate;
                testing::submit_gate(queue, gate);
                const pid_t child = fork();
                if (child == 0) {
                  const Result result = CommandTrace::instance().stop();
                  std::_Exit(result.spans.empty() ? 0 : 1);
                }
                int status = -1;
                waitpid(child, &status, 0);
                EXPECT_EQ(status, 0);
                gate.open();
                EXPECT_THAT(names(CommandTrace::instance().stop()), ElementsAre("gate"));
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
