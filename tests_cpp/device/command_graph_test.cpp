// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/command_graph.h"

#include "loom/base/check.h"
#include "loom/device/device.h"
#include "loom/device/event.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace loom {
namespace {

std::string thrown_text(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class CommandGraphTest : public testing::QueueFixture {
 protected:
  void TearDown() override { graph_->end_capture(); }

  void note(Queue& queue, int number) {
    queue.submit("note", [this, number] { ran_.push_back(number); });
  }
  void replay(Queue& queue) {
    queue.submit("replay", [graph = graph_] { graph->run(); });
  }

  std::vector<int> ran_;
  std::shared_ptr<CommandGraph> graph_ = std::make_shared<CommandGraph>();
};

TEST_F(CommandGraphTest, CapturedCommandsRunAtEachReplayAndNotBefore) {
  note(queue_, 0);
  graph_->begin_capture(queue_);
  note(queue_, 1);
  note(queue_, 2);
  graph_->end_capture();
  queue_.synchronize();
  EXPECT_EQ(ran_, (std::vector<int>{0}));
  EXPECT_EQ(graph_->size(), 2U);
  replay(queue_);
  note(queue_, 3);
  replay(queue_);
  queue_.synchronize();
  EXPECT_EQ(ran_, (std::vector<int>{0, 1, 2, 3, 1, 2}));
}

TEST_F(CommandGraphTest, AQueueCanBeCapturedBeforeItsFirstCommand) {
  graph_->begin_capture(other_);
  EXPECT_EQ(other_.submit("nothing", nothing), 0U);
  graph_->end_capture();
  EXPECT_TRUE(other_.idle());
  EXPECT_EQ(other_.submit("nothing", nothing), 1U);
  other_.synchronize();
}

TEST_F(CommandGraphTest, WorkSubmittedBeforeTheCaptureStillRuns) {
  testing::Gate gate;
  submit_gate(queue_, gate);
  note(queue_, 1);
  graph_->begin_capture(queue_);
  EXPECT_TRUE(queue_.captured());
  EXPECT_EQ(queue_.capture_id(), graph_->id());
  gate.open();
  queue_.timeline().wait(queue_.submitted());
  EXPECT_EQ(ran_, (std::vector<int>{1}));
  graph_->end_capture();
  EXPECT_FALSE(queue_.captured());
}

TEST_F(CommandGraphTest, AReplayMayRunOnAnyQueue) {
  graph_->begin_capture(queue_);
  Queue* ran_on = nullptr;
  queue_.submit("note", [&] { ran_on = Queue::current(); });
  graph_->end_capture();
  replay(other_);
  other_.synchronize();
  EXPECT_EQ(ran_on, &other_);
}

TEST_F(CommandGraphTest, CommandsLiveAsLongAsAReplayIsQueued) {
  auto token = std::make_shared<int>();
  graph_->begin_capture(queue_);
  queue_.submit("hold", [token] {});
  graph_->end_capture();
  testing::Gate gate;
  submit_gate(queue_, gate);
  replay(queue_);
  graph_ = std::make_shared<CommandGraph>();
  EXPECT_EQ(token.use_count(), 2);
  gate.open();
  queue_.synchronize();
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(CommandGraphTest, AQueueThatWaitsForACapturedEventJoinsTheCapture) {
  QueueEvent fork;
  QueueEvent join;
  graph_->begin_capture(queue_);
  note(queue_, 1);
  fork.record(queue_);
  fork.block(other_);
  note(other_, 2);
  note(queue_, 3);
  join.record(other_);
  join.block(queue_);
  note(queue_, 4);
  EXPECT_EQ(other_.capture_id(), graph_->id());
  graph_->end_capture();
  EXPECT_FALSE(other_.captured());
  replay(queue_);
  queue_.synchronize();
  EXPECT_EQ(ran_, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(CommandGraphTest, ACapturedEventCannotBeWaitedForByTheHostOrLater) {
  QueueEvent event(EventTiming::kEnabled);
  graph_->begin_capture(queue_);
  event.record(queue_);
  EXPECT_NE(thrown_text([&] { event.synchronize(); }).find("marks a place in the graph"),
            std::string::npos);
  EXPECT_NE(thrown_text([&] { (void)event.query(); }).find("marks a place in the graph"),
            std::string::npos);
  graph_->end_capture();
  EXPECT_NE(thrown_text([&] { event.block(other_); }).find("whose capture has ended"),
            std::string::npos);
  event.record(queue_);
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(CommandGraphTest, WaitsForUncapturedWorkAreRefusedAndInvalidateTheCapture) {
  testing::Gate gate;
  submit_gate(other_, gate);
  QueueEvent event;
  event.record(other_);
  graph_->begin_capture(queue_);
  EXPECT_EQ(graph_->invalid_reason(), "");
  EXPECT_NE(thrown_text([&] { event.block(queue_); }).find("not recorded in the capture"),
            std::string::npos);
  EXPECT_NE(graph_->invalid_reason().find("not recorded in the capture"), std::string::npos);
  gate.open();
}

TEST_F(CommandGraphTest, AnEventOfTheQueueFromBeforeTheCaptureIsNoWait) {
  QueueEvent event;
  queue_.submit("nothing", nothing);
  event.record(queue_);
  graph_->begin_capture(queue_);
  event.block(queue_);
  EXPECT_EQ(graph_->invalid_reason(), "");
}

TEST_F(CommandGraphTest, SynchronizeIsRefusedAndTheQueueIsUsableAfterwards) {
  graph_->begin_capture(queue_);
  EXPECT_EQ(thrown_text([&] { queue_.synchronize(); }).find("synchronize() cannot be captured"),
            0U);
  graph_->end_capture();
  EXPECT_EQ(graph_->invalid_reason().find("synchronize() cannot be captured"), 0U);
  note(queue_, 1);
  queue_.synchronize();
  EXPECT_EQ(ran_, (std::vector<int>{1}));
}

TEST_F(CommandGraphTest, AQueueBelongsToOneCapture) {
  graph_->begin_capture(queue_);
  const auto second = std::make_shared<CommandGraph>();
  EXPECT_NE(thrown_text([&] { second->begin_capture(queue_); }).find("captured in another graph"),
            std::string::npos);
  EXPECT_EQ(queue_.capture_id(), graph_->id());
  second->end_capture();
  EXPECT_EQ(queue_.capture_id(), graph_->id());
}

TEST_F(CommandGraphTest, AQueueOfAnotherDeviceCannotJoin) {
  Queue far{QueueId{1, 0, 0}, cores_};
  graph_->begin_capture(queue_);
  EXPECT_NE(thrown_text([&] { graph_->join(far); }).find("work of one device"), std::string::npos);
  EXPECT_FALSE(far.captured());
}

TEST_F(CommandGraphTest, TheFirstErrorOfAReplayNamesItsCommandAndTheRestRuns) {
  graph_->begin_capture(queue_);
  note(queue_, 1);
  queue_.submit("bad", [] { throw std::runtime_error("out of range"); });
  queue_.submit("worse", [] { throw std::runtime_error("not this one"); });
  note(queue_, 2);
  graph_->end_capture();
  replay(queue_);
  const std::string text = thrown_text([&] { queue_.synchronize(); });
  EXPECT_EQ(text.find("out of range (asynchronous error: raised by 'bad (command 2 of 4 of a "
                      "graph)', command 1 of"),
            0U)
      << text;
  EXPECT_EQ(ran_, (std::vector<int>{1, 2}));
  queue_.synchronize();  // once
}

TEST_F(CommandGraphTest, AGraphMayHoldTheReplayOfAnother) {
  graph_->begin_capture(queue_);
  note(queue_, 1);
  graph_->end_capture();
  const auto outer = std::make_shared<CommandGraph>();
  outer->begin_capture(queue_);
  replay(queue_);
  note(queue_, 2);
  replay(queue_);
  outer->end_capture();
  queue_.submit("replay", [outer] { outer->run(); });
  queue_.synchronize();
  EXPECT_EQ(ran_, (std::vector<int>{1, 2, 1}));
}

TEST_F(CommandGraphTest, CommandsOfTwoThreadsAreAllCapturedEachThreadsInOrder) {
  constexpr int kEach = 2000;
  std::vector<int> next(2, 0);
  bool ordered = true;
  graph_->begin_capture(queue_);
  graph_->join(other_);
  testing::on_threads(2, [&](int thread) {
    Queue& queue = thread == 0 ? queue_ : other_;
    for (int i = 0; i < kEach; ++i) {
      queue.submit("note", [&, thread, i] {
        ordered = ordered && next[static_cast<std::size_t>(thread)]++ == i;
      });
    }
  });
  graph_->end_capture();
  EXPECT_EQ(graph_->size(), 2U * kEach);
  replay(queue_);
  queue_.synchronize();
  EXPECT_TRUE(ordered);
  EXPECT_EQ(next, (std::vector<int>{kEach, kEach}));
}

TEST_F(CommandGraphTest, NoCommandIsLostWhereACaptureEndsBesideASubmission) {
  constexpr int kCommands = 5000;
  std::vector<int> ran_by(kCommands, 0);
  testing::on_threads(2, [&](int thread) {
    if (thread == 0) {
      for (std::size_t i = 0; i < kCommands; ++i) {
        queue_.submit("count", [&ran_by, i] { ++ran_by[i]; });
      }
    } else {
      graph_->begin_capture(queue_);
      graph_->end_capture();
    }
  });
  replay(queue_);
  queue_.synchronize();
  EXPECT_EQ(ran_by, std::vector<int>(kCommands, 1));
}

TEST(CommandGraphDeviceTest, ADeviceIsSynchronizedByThreadsThatDoNotCapture) {
  Device& owner = device(0);
  Queue& queue = owner.pool_queue(0, 5);
  const auto graph = std::make_shared<CommandGraph>();
  graph->begin_capture(queue);
  testing::on_threads(1, [&](int) { owner.synchronize(); });
  EXPECT_EQ(graph->invalid_reason(), "");
  EXPECT_NE(thrown_text([&] { owner.synchronize(); }), "nothing was thrown");
  EXPECT_NE(graph->invalid_reason(), "");
  graph->end_capture();
  owner.synchronize();
}

}  // namespace
}  // namespace loom
