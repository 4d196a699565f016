// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/check.h"
#include "loom/device/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/gate.h"
#include "support/queues.h"
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace loom {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using testing::Gate;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class QueueErrorTest : public testing::QueueFixture {
 protected:
  std::uint64_t submit_failing(const char* message) {
    return queue_.submit("index_select", [message] { throw std::out_of_range(message); });
  }
};

TEST_F(QueueErrorTest, IsThrownOnceByTheNextSynchronize) {
  submit_failing("index 7");
  EXPECT_THROW(queue_.synchronize(), Error);
  EXPECT_NO_THROW(queue_.synchronize());
}

TEST_F(QueueErrorTest, TextSaysWhatAndWhereItCameFrom) {
  queue_.submit("nothing", nothing);
  submit_failing("index 7 is out of bounds");
  EXPECT_THAT([&] { queue_.synchronize(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("index 7 is out of bounds (asynchronous error: "
                                                   "raised by 'index_select', command 2 of "
                                                   "queue 0:0:0"),
                                         HasSubstr("LOOM_LAUNCH_BLOCKING=1"))));
}

TEST_F(QueueErrorTest, LaterCommandsRunAllTheSame) {
  bool ran = false;
  submit_failing("first");
  queue_.submit("note", [&] { ran = true; });
  EXPECT_THROW(queue_.synchronize(), Error);
  EXPECT_TRUE(ran);
}

TEST_F(QueueErrorTest, OnlyTheFirstIsKept) {
  submit_failing("first");
  submit_failing("second");
  EXPECT_THAT([&] { queue_.synchronize(); }, ThrowsMessage<Error>(HasSubstr("first")));
  EXPECT_NO_THROW(queue_.synchronize());
}

TEST_F(QueueErrorTest, AfterAThrowTheNextOneIsKept) {
  submit_failing("first");
  EXPECT_THROW(queue_.synchronize(), Error);
  submit_failing("second");
  EXPECT_THAT([&] { queue_.synchronize(); }, ThrowsMessage<Error>(HasSubstr("second")));
}

TEST_F(QueueErrorTest, AWaitForEarlierCommandsDoesNotThrow) {
  const std::uint64_t before = queue_.submit("nothing", nothing);
  const std::uint64_t failing = submit_failing("later");
  const std::uint64_t after = queue_.submit("nothing", nothing);
  queue_.timeline().wait(after);
  EXPECT_NO_THROW(queue_.synchronize(before));
  EXPECT_THROW(queue_.synchronize(failing), Error);
}

TEST_F(QueueErrorTest, StaysOnItsOwnQueue) {
  submit_failing("mine");
  other_.submit("nothing", nothing);
  EXPECT_NO_THROW(other_.synchronize());
  EXPECT_THROW(queue_.synchronize(), Error);
}

TEST_F(QueueErrorTest, WhatIsNoStdExceptionKeepsItsType) {
  queue_.submit("odd", [] { throw 42; });
  EXPECT_THROW(queue_.synchronize(), int);
}

TEST_F(QueueErrorTest, TheCallableIsDestroyedBeforeItIsThrown) {
  auto token = std::make_shared<int>();
  queue_.submit("hold", [token] { throw std::runtime_error("held"); });
  EXPECT_THROW(queue_.synchronize(), Error);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(QueueErrorTest, OneOfManyWaitersGetsIt) {
  Gate gate;
  submit_gate(queue_, gate);
  submit_failing("once");
  std::atomic<int> thrown{0};
  {
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 8; ++i) {
      waiters.emplace_back([&] {
        try {
          queue_.synchronize();
        } catch (const Error&) {
          thrown.fetch_add(1);
        }
      });
    }
    gate.open();
  }
  EXPECT_EQ(thrown.load(), 1);
}

TEST_F(QueueErrorTest, ACommandThatWaitsForItsOwnQueueGetsAnError) {
  queue_.submit("suicidal", [&] { queue_.synchronize(); });
  EXPECT_THAT([&] { queue_.synchronize(); },
              ThrowsMessage<Error>(HasSubstr("waits for its own queue")));
}

class IndexError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Keeps IndexError as it is but for its text, fails on logic errors, knows nothing else.
AnnotatedError annotate(const std::exception_ptr& error, const std::string& origin) {
  try {
    std::rethrow_exception(error);
  } catch (const IndexError& known) {
    const std::string text = std::string(known.what()) + "; " + origin;
    return {std::make_exception_ptr(IndexError(text)), text};
  } catch (const std::logic_error&) {
    throw;
  } catch (...) {
    return {};
  }
}

class QueueAnnotatorTest : public QueueErrorTest {
 protected:
  void SetUp() override { set_error_annotator(annotate); }
  void TearDown() override { set_error_annotator(nullptr); }
};

TEST_F(QueueAnnotatorTest, KnownTypesKeepTheirDynamicType) {
  queue_.submit("gather", [] { throw IndexError("index 3"); });
  EXPECT_THAT(
      [&] { queue_.synchronize(); },
      ThrowsMessage<IndexError>(HasSubstr("index 3; asynchronous error: raised by 'gather'")));
}

TEST_F(QueueAnnotatorTest, UnknownStdExceptionsBecomeErrors) {
  queue_.submit("gather", [] { throw std::runtime_error("other"); });
  EXPECT_THAT([&] { queue_.synchronize(); },
              ThrowsMessage<Error>(HasSubstr("(asynchronous error: raised by 'gather'")));
}

TEST_F(QueueAnnotatorTest, WhenItFailsTheErrorStaysAsItWas) {
  queue_.submit("gather", [] { throw std::logic_error("as it was"); });
  EXPECT_THAT([&] { queue_.synchronize(); }, ThrowsMessage<std::logic_error>("as it was"));
}

class LaunchBlockingTest : public testing::ChildTest {
 protected:
  /// Runs `body(queue, other)` where every launch blocks.
  template <class Body>
  static void with_blocking_queues(Body&& body) {
    setenv("LOOM_LAUNCH_BLOCKING", "1", 1);
    Cores cores(1);
    Queue queue(QueueId{0, 0, 0}, cores);
    Queue other(QueueId{0, 0, 1}, cores);
    body(queue, other);
  }
};

TEST_F(LaunchBlockingTest, SubmitReturnsAfterTheCommandHasRun) {
  EXPECT_EXIT(testing::finish([] {
                with_blocking_queues([](Queue& queue, Queue&) {
                  int ran = 0;
                  for (int i = 1; i <= 100; ++i) {
                    queue.submit("note", [&ran] { ++ran; });
                    EXPECT_EQ(ran, i);
                  }
                });
              }),
              ExitedWithCode(0), "");
}

TEST_F(LaunchBlockingTest, SubmitThrowsTheCommandsError) {
  EXPECT_EXIT(testing::finish([] {
                with_blocking_queues([](Queue& queue, Queue&) {
                  EXPECT_THROW(queue.submit("bad", [] { throw std::runtime_error("here"); }),
                               Error);
                  EXPECT_NO_THROW(queue.submit("good", [] {}));
                });
              }),
              ExitedWithCode(0), "");
}

TEST_F(LaunchBlockingTest, ACommandThatSubmitsToItsOwnQueueDoesNotWaitForItself) {
  EXPECT_EXIT(testing::finish([] {
                with_blocking_queues([](Queue& queue, Queue&) {
                  bool inner = false;
                  queue.submit("outer", [&] { queue.submit("inner", [&] { inner = true; }); });
                  queue.synchronize();
                  EXPECT_TRUE(inner);
                });
              }),
              ExitedWithCode(0), "");
}

TEST_F(LaunchBlockingTest, AWaitForAnotherTimelineDoesNotBlockTheCaller) {
  EXPECT_EXIT(testing::finish([] {
                with_blocking_queues([](Queue& queue, Queue&) {
                  Timeline timeline;
                  queue.wait_for(timeline, 1);
                  timeline.advance(1);
                  queue.submit("nothing", [] {});
                });
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
