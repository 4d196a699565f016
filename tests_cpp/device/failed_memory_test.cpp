// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/failed_memory.h"

#include "loom/base/check.h"
#include "loom/base/float_mode.h"
#include "loom/device/arena.h"
#include "loom/device/command_graph.h"
#include "loom/device/event.h"
#include "loom/device/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/flushing.h"
#include "support/gate.h"
#include "support/queues.h"
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace loom {
namespace {

using testing::Gate;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kBytes = 64;

/// A command with a body, and with what it says to touch.
struct Command {
  std::function<void()> body;
  AccessList touches;
  std::function<void(const FailurePtr&)> when_failed = nullptr;

  void operator()() const { body(); }
  void accesses(AccessList& list) const { list = touches; }
  void failed(const FailurePtr& failure) const {
    if (when_failed) when_failed(failure);
  }
};

class FailedMemoryTest : public testing::QueueFixture {
 protected:
  void TearDown() override {
    queue_.timeline().wait(queue_.submitted());
    other_.timeline().wait(other_.submitted());
    FailedMemory::clear({{segment_, kSegment, AccessKind::kReplace}});
    EXPECT_FALSE(FailedMemory::any());
  }

  std::byte* at(int place) const { return segment_ + place * static_cast<int>(kBytes); }
  Access read(int place) const { return {at(place), kBytes, AccessKind::kRead}; }
  Access replace(int place) const { return {at(place), kBytes, AccessKind::kReplace}; }
  Access update(int place) const { return {at(place), kBytes, AccessKind::kUpdate}; }

  void submit(AccessList touches, std::function<void()> body = nothing) {
    submit_to(queue_, std::move(touches), std::move(body));
  }
  static void submit_to(Queue& queue, AccessList touches, std::function<void()> body = nothing) {
    queue.submit("command", Command{std::move(body), std::move(touches)});
  }
  void submit_failing(AccessList touches, const char* message = "index 7") {
    queue_.submit("gather",
                  Command{[message] { throw std::out_of_range(message); }, std::move(touches)});
  }
  /// Waits, and takes the error that is raised once.
  void take_error(Queue& queue) { EXPECT_THROW(queue.synchronize(), Error); }

  [[nodiscard]] bool failed(int place) const {
    try {
      FailedMemory::check(at(place), kBytes);
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  static constexpr std::size_t kSegment = std::size_t{2} << 20;
  Arena arena_{7, kSegment};
  std::byte* const segment_ = static_cast<std::byte*>(arena_.map_segment(kSegment));
};

TEST_F(FailedMemoryTest, WhatAFailedCommandShouldHaveWrittenIsMarked) {
  submit_failing({read(0), replace(1), update(2)});
  take_error(queue_);
  EXPECT_FALSE(failed(0));
  EXPECT_TRUE(failed(1));
  EXPECT_TRUE(failed(2));
}

TEST_F(FailedMemoryTest, EveryLookGetsTheFirstError) {
  submit_failing({replace(1)}, "index 11");
  take_error(queue_);
  for (int look = 0; look < 3; ++look) {
    EXPECT_THAT(
        [&] { FailedMemory::check(at(1), 1); },
        ThrowsMessage<Error>(HasSubstr("index 11 (asynchronous error: raised by 'gather'")));
  }
}

TEST_F(FailedMemoryTest, WhatReadsFailedMemoryDoesNotRunAndFailsWhatItWrites) {
  bool ran = false;
  submit_failing({replace(1)}, "first");
  submit({read(1), replace(2)}, [&] { ran = true; });
  submit({read(2), replace(3)}, [&] { ran = true; });
  take_error(queue_);
  EXPECT_FALSE(ran);
  EXPECT_THAT([&] { FailedMemory::check(at(3), kBytes); },
              ThrowsMessage<Error>(HasSubstr("first")));
  EXPECT_NO_THROW(queue_.synchronize());  // once
}

TEST_F(FailedMemoryTest, AnUpdateReadsWhatItWrites) {
  bool ran = false;
  submit_failing({replace(1)});
  submit({update(1)}, [&] { ran = true; });
  take_error(queue_);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(failed(1));
}

TEST_F(FailedMemoryTest, WhatReadsOnlyHealthyMemoryRuns) {
  bool ran = false;
  submit_failing({replace(1)});
  submit({read(0), replace(2)}, [&] { ran = true; });
  take_error(queue_);
  EXPECT_TRUE(ran);
  EXPECT_FALSE(failed(2));
}

TEST_F(FailedMemoryTest, CommandsHaveTheFloatModeOfTheirSubmissionWhileSomethingIsMarked) {
  FloatMode flushing, seen, after;
  submit_failing({replace(1)});
  {
    const testing::Flushing denormals;
    flushing = FloatMode::current();
    submit({replace(2)}, [&] { seen = FloatMode::current(); });
  }
  submit({replace(3)}, [&] { after = FloatMode::current(); });
  take_error(queue_);
  EXPECT_EQ(seen, flushing);
  EXPECT_EQ(after, FloatMode::current());
}

TEST_F(FailedMemoryTest, MemoryThatIsWrittenAllOverIsHealthyAgain) {
  submit_failing({replace(1)});
  take_error(queue_);
  submit({replace(1)});
  queue_.synchronize();
  EXPECT_FALSE(failed(1));
  EXPECT_FALSE(FailedMemory::any());
}

TEST_F(FailedMemoryTest, OnlyThePartThatIsWrittenIsHealthyAgain) {
  submit_failing({{at(1), 3 * kBytes, AccessKind::kReplace}});
  take_error(queue_);
  submit({replace(2)});
  queue_.synchronize();
  EXPECT_TRUE(failed(1));
  EXPECT_FALSE(failed(2));
  EXPECT_TRUE(failed(3));
}

TEST_F(FailedMemoryTest, FailsOnOtherQueuesToo) {
  bool ran = false;
  submit_failing({replace(1)});
  other_.wait_for(queue_.timeline(), queue_.submitted());
  submit_to(other_, {read(1), replace(2)}, [&] { ran = true; });
  take_error(other_);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(failed(2));
  EXPECT_NO_THROW(queue_.synchronize());  // it has been raised
}

TEST_F(FailedMemoryTest, AnAwaitedCommandGetsItsOwnErrorWhoeverHasSeenIt) {
  submit_failing({replace(1)}, "first");
  take_error(queue_);
  for (int look = 0; look < 2; ++look) {
    EXPECT_THAT([&] { queue_.submit_and_wait("copy_", Command{nothing, {read(1)}}); },
                ThrowsMessage<Error>(HasSubstr("first")));
  }
  bool ran = false;
  queue_.submit_and_wait("copy_", Command{[&] { ran = true; }, {read(0)}});
  EXPECT_TRUE(ran);
}

TEST_F(FailedMemoryTest, WhatIsRaisedAgainIsThrownThoughItHasBeenSeen) {
  submit_failing({replace(1)});
  take_error(queue_);
  queue_.submit("to_host", Command{nothing, {read(1)}, [&](const FailurePtr& failure) {
                                     queue_.raise_to_each_thread(failure);
                                   }});
  take_error(queue_);
  EXPECT_NO_THROW(queue_.synchronize());
}

/// A copy to memory that the host reads past loom.
Command to_host(Queue& queue, AccessList touches) {
  return {[] {}, std::move(touches),
          [&queue](const FailurePtr& failure) { queue.raise_to_each_thread(failure); }};
}

/// Whether a wait for the position throws, on the calling thread.
bool told(Queue& queue, std::uint64_t position) {
  try {
    queue.synchronize(position);
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST_F(FailedMemoryTest, EachThreadIsToldOfWhatDoesNotReachTheHost) {
  Gate ready, go;
  bool reader_told = false, reader_told_again = true, newcomer_told = true;
  std::uint64_t copied = 0;
  std::jthread reader([&] {
    queue_.synchronize();  // loom knows the thread
    ready.pass();
    go.pass();
    reader_told = told(queue_, queue_.submitted());
    reader_told_again = told(queue_, queue_.submitted());
  });
  ready.wait_for_arrivals();
  ready.open();
  submit_failing({replace(1)});
  take_error(queue_);
  queue_.submit("to_host", to_host(queue_, {read(1)}));
  copied = queue_.submitted();
  EXPECT_TRUE(told(queue_, copied));
  EXPECT_FALSE(told(queue_, copied));
  submit({replace(3)});
  go.open();
  reader.join();
  EXPECT_TRUE(reader_told);
  EXPECT_FALSE(reader_told_again);
  std::jthread([&] { newcomer_told = told(queue_, queue_.submitted()); }).join();
  EXPECT_FALSE(newcomer_told) << "it came when the error had been dealt with";
}

TEST_F(FailedMemoryTest, ANewThreadIsToldThatWaitsForTheCopyItself) {
  bool consumer_told = false;
  submit_failing({replace(1)});
  take_error(queue_);
  queue_.submit("to_host", to_host(queue_, {read(1)}));
  const std::uint64_t copied = queue_.submitted();
  EXPECT_TRUE(told(queue_, copied));
  submit({replace(3)});
  std::jthread([&] { consumer_told = told(queue_, copied); }).join();
  EXPECT_TRUE(consumer_told);
}

TEST_F(FailedMemoryTest, ManyCopiesThatFailAreToldOnceAndKeptInBoundedMemory) {
  submit_failing({replace(1)});
  take_error(queue_);
  for (int copy = 0; copy < 100; ++copy) {
    queue_.submit("to_host", to_host(queue_, {read(1)}));
  }
  EXPECT_TRUE(told(queue_, queue_.submitted()));
  EXPECT_FALSE(told(queue_, queue_.submitted()));
}

TEST_F(FailedMemoryTest, HostMemoryThatATensorLiesInIsMarked) {
  std::byte host[kBytes]{};
  const Access write{host, kBytes, AccessKind::kReplace}, look{host, kBytes, AccessKind::kRead};
  bool ran = false;
  {
    const HostVisible visible(host, kBytes);
    submit_failing({write});
    take_error(queue_);
    for (int i = 0; i < 2; ++i) EXPECT_THROW(FailedMemory::check(host, 1), Error);
    submit({look, replace(2)}, [&] { ran = true; });
    queue_.synchronize();
    EXPECT_FALSE(ran);
    EXPECT_TRUE(failed(2));
    submit({write});
    queue_.synchronize();
    EXPECT_NO_THROW(FailedMemory::check(host, kBytes));
    submit_failing({write});
    take_error(queue_);
  }
  EXPECT_NO_THROW(FailedMemory::check(host, kBytes)) << "its owner may have written it";
}

TEST_F(FailedMemoryTest, HostMemoryStaysMarkedWhereAnotherTensorLies) {
  std::byte host[3 * kBytes]{};
  const HostVisible stays(host + kBytes, kBytes);
  {
    const HostVisible goes(host, sizeof host);
    submit_failing({{host, sizeof host, AccessKind::kReplace}});
    take_error(queue_);
  }
  EXPECT_NO_THROW(FailedMemory::check(host, kBytes));
  EXPECT_THROW(FailedMemory::check(host + kBytes, kBytes), Error);
  EXPECT_NO_THROW(FailedMemory::check(host + 2 * kBytes, kBytes));
  submit({{host + kBytes, kBytes, AccessKind::kReplace}});
  queue_.synchronize();
}

TEST_F(FailedMemoryTest, AFailureInMemoryThatTheHostViewsIsToldToEachThread) {
  const HostVisible view(at(1), kBytes);
  bool other_told = false;
  std::uint64_t failing = 0;
  submit_failing({replace(1)});
  failing = queue_.submitted();
  EXPECT_TRUE(told(queue_, failing));
  std::jthread([&] { other_told = told(queue_, failing); }).join();
  EXPECT_TRUE(other_told);
}

TEST_F(FailedMemoryTest, MemoryThatIsUnmappedLeavesNoMark) {
  submit_failing({replace(1)});
  take_error(queue_);
  ASSERT_TRUE(FailedMemory::any());
  FailedMemory::note_unmapped(segment_, kSegment);
  EXPECT_FALSE(FailedMemory::any());
}

TEST_F(FailedMemoryTest, ANewOwnerOfTheMemoryFindsItHealthy) {
  submit_failing({replace(1)});
  take_error(queue_);
  FailedMemory::note_allocated(at(1), kBytes, queue_);
  EXPECT_FALSE(failed(1));
  bool ran = false;
  submit({read(1), replace(2)}, [&] { ran = true; });
  queue_.synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(FailedMemoryTest, WhatWasSubmittedBeforeTheNewOwnerStillFails) {
  Gate gate;
  bool old_ran = false, new_ran = false;
  submit_failing({replace(1)});
  take_error(queue_);
  submit_gate(queue_, gate);
  submit({read(1), replace(2)}, [&] { old_ran = true; });
  FailedMemory::note_freed(at(1), kBytes, queue_);
  FailedMemory::note_allocated(at(1), kBytes, queue_);
  submit({read(1), replace(3)}, [&] { new_ran = true; });
  gate.open();
  queue_.timeline().wait(queue_.submitted());
  EXPECT_FALSE(old_ran);
  EXPECT_TRUE(new_ran);
}

bool nothing_is_allocated(const void*) { return false; }

TEST_F(FailedMemoryTest, MemoryThatWasDroppedBeforeTheFailureFailsForItsReadersOnly) {
  FailedMemory::set_allocation_probe(nothing_is_allocated);
  Gate gate;
  bool old_ran = false, new_ran = false;
  submit_gate(queue_, gate);
  submit_failing({replace(1)});
  submit({read(1)}, [&] { old_ran = true; });
  gate.open();
  queue_.timeline().wait(queue_.submitted());
  submit({read(1)}, [&] { new_ran = true; });
  take_error(queue_);
  EXPECT_FALSE(old_ran);
  EXPECT_TRUE(new_ran);
  FailedMemory::set_allocation_probe(nullptr);
}

TEST_F(FailedMemoryTest, CommandsOfAGraphFailOneByOne) {
  bool dependent = false, independent = false;
  const auto graph = std::make_shared<CommandGraph>();
  graph->begin_capture(queue_);
  submit_failing({replace(1)});
  submit({read(1), replace(2)}, [&] { dependent = true; });
  submit({read(0), replace(3)}, [&] { independent = true; });
  graph->end_capture();
  queue_.submit("replay", [graph] { graph->run(); });
  EXPECT_THAT([&] { queue_.synchronize(); },
              ThrowsMessage<Error>(HasSubstr("'gather (command 1 of 3 of a graph)'")));
  EXPECT_FALSE(dependent);
  EXPECT_TRUE(independent);
  EXPECT_TRUE(failed(2));
  EXPECT_FALSE(failed(3));
}

TEST_F(FailedMemoryTest, OneOfTwoErrorsIsRaisedAndBothStayWithTheirValues) {
  submit_failing({replace(1)}, "first");
  submit_failing({replace(2)}, "second");
  EXPECT_THAT([&] { queue_.synchronize(); }, ThrowsMessage<Error>(HasSubstr("first")));
  EXPECT_THAT([&] { FailedMemory::check(at(2), kBytes); },
              ThrowsMessage<Error>(HasSubstr("second")));
}

TEST_F(FailedMemoryTest, HostMemoryIsNotMarked) {
  std::byte host[kBytes];
  submit_failing({{host, kBytes, AccessKind::kReplace}});
  take_error(queue_);
  EXPECT_FALSE(FailedMemory::any());
}

}  // namespace
}  // namespace loom
