// SPDX-License-Identifier: BSD-3-Clause
// What happens to queues when the process exits or forks.
#include "loom/base/check.h"
#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/device/arena.h"
#include "loom/device/command_buffer.h"
#include "loom/device/command_graph.h"
#include "loom/device/device.h"
#include "loom/device/event.h"
#include "loom/device/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child.h"
#include "support/forked.h"
#include "support/gate.h"
#include "support/queues.h"
#include "support/threads.h"
#include <atomic>
#include <cstdlib>
#include <memory>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

// LeakSanitizer asks this before it looks for leaks at exit. In a forked child it would wait for a
// lock of its allocator that a thread of the parent held at the fork.
extern "C" __attribute__((visibility("default"), used)) int __lsan_is_turned_off() {
  return loom::in_bad_fork() ? 1 : 0;
}

namespace loom {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using ExitTest = testing::ChildTest;

TEST_F(ExitTest, TheCurrentCommandEndsAndQueuedOnesAreNotRun) {
  EXPECT_EXIT(testing::finish([] {
                static std::atomic<bool> running{false};
                static std::atomic<bool> ended{false};
                // Registered before loom's own handler, so it runs after it.
                std::atexit([] {
                  if (!ended.load()) std::_Exit(11);
                });
                Queue& queue = device(0).default_queue();
                queue.submit("current", [] {
                  running.store(true);
                  while (!exiting()) std::this_thread::yield();
                  ended.store(true);
                });
                for (int i = 0; i < 1'000; ++i) queue.submit("queued", [] { std::_Exit(12); });
                while (!running.load()) std::this_thread::yield();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ExitTest, AWorkerThatWaitsForAnotherQueueDoesNotHoldIt) {
  EXPECT_EXIT(testing::finish([] {
                static Timeline never;
                testing::Gate waiting;
                Queue& queue = device(0).default_queue();
                queue.submit("arrive", [&] { waiting.open(); });
                queue.wait_for(never, 1);
                queue.submit("after", [] { std::_Exit(12); });
                waiting.pass();
                testing::wait_until_others_sleep();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ExitTest, BusyAndIdleCoresDoNotHoldIt) {
  EXPECT_EXIT(testing::finish([] {
                static std::atomic<bool> running{false};
                Cores& cores = *new Cores(4);
                auto& queue = *new Queue(QueueId{0, 0, 0}, cores);
                queue.submit("grid", [&cores] {
                  cores.run(1000, [](std::int64_t) {
                    running.store(true);
                    std::this_thread::yield();
                  });
                });
                while (!running.load()) std::this_thread::yield();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ExitTest, WhatIsSubmittedAfterwardsIsDroppedAndWaitsReturn) {
  EXPECT_EXIT(testing::finish([] {
                // Registered before loom's own handler, so it runs after it, as static destructors
                // do.
                std::atexit([] {
                  if (!exiting()) std::_Exit(11);
                  Device& late = device(0);
                  auto token = std::make_shared<int>();
                  late.default_queue().submit("late", [token] { std::_Exit(12); });
                  if (token.use_count() != 1) std::_Exit(13);
                  late.next_pool_queue(0).submit("first of its queue", [] { std::_Exit(14); });
                  QueueEvent event(EventTiming::kEnabled);
                  event.record(late.default_queue());
                  event.synchronize();
                  late.synchronize();
                  int blocks = 0;
                  late.cores().run(10, [&](std::int64_t) { ++blocks; });
                  if (blocks != 10) std::_Exit(15);
                });
                Queue& queue = device(0).default_queue();
                queue.submit("hold", [] {
                  while (!exiting()) std::this_thread::yield();
                });
                queue.submit("queued", [] { std::_Exit(16); });
              }),
              ExitedWithCode(0), "");
}

struct OfACommand {
  ~OfACommand() { alive = false; }
  static inline std::atomic<bool> alive{false};
};

/// Makes a static object, which is destroyed before loom's exit handler runs, and uses it on.
void use_static_object_until_exit() {
  static const OfACommand object;
  OfACommand::alive = true;
  while (!exiting()) {
    if (!OfACommand::alive) std::_Exit(17);
  }
}

TEST_F(ExitTest, StaticObjectsOfACommandOutliveItWhereTheProgramStopsTheThreads) {
  EXPECT_EXIT(testing::finish([] {
                device(0).default_queue().submit("static", &use_static_object_until_exit);
                while (!OfACommand::alive) std::this_thread::yield();
                stop_threads();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ExitTest, StoppingIsForGoodAndMayBeAskedForByManyThreads) {
  EXPECT_EXIT(testing::finish([] {
                static std::atomic<int> ran{0};
                Queue& queue = device(0).default_queue();
                testing::Gate waiting;
                queue.submit("current", [&] {
                  waiting.open();
                  while (!exiting()) std::this_thread::yield();
                  testing::wait_until_others_sleep();  // or have returned too early
                  ++ran;
                });
                for (int i = 0; i < 100; ++i) queue.submit("queued", [] { std::_Exit(12); });
                waiting.pass();
                testing::on_threads(4, [](int) {
                  stop_threads();
                  EXPECT_EQ(ran, 1) << "every caller returns after the threads have ended";
                });
                queue.submit("late", [] { std::_Exit(13); });
                queue.synchronize();
                stop_threads();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ExitTest, ACommandMayCallExit) {
  EXPECT_EXIT(testing::finish([] {
                Queue& queue = device(0).default_queue();
                queue.submit("exit", [] { std::exit(7); });
                for (;;) pause();
              }),
              ExitedWithCode(7), "");
}

TEST_F(ExitTest, AHostThreadThatWaitsDoesNotHoldIt) {
  EXPECT_EXIT(testing::finish([] {
                Queue& queue = device(0).default_queue();
                static Timeline never;
                queue.wait_for(never, 1);
                const std::uint64_t waits = Queue::host_waits();
                std::thread([&queue] { queue.synchronize(); }).detach();
                while (Queue::host_waits() == waits) std::this_thread::yield();
                testing::wait_until_others_sleep();
              }),
              ExitedWithCode(0), "");
}

// The wait returned as soon as the process began to exit, and the command went on in a frame that
// was gone.
TEST_F(ExitTest, ACommandThatUsesAHostThreadsStackEndsBeforeThatReturns) {
  EXPECT_EXIT(testing::finish([] {
                Queue& queue = device(0).default_queue();
                testing::Gate running, gate;
                std::atomic<bool> ended{false};
                std::thread host([&] {
                  queue.submit_and_wait("uses the stack", [&] {
                    running.open();
                    gate.pass();
                    ended = true;
                  });
                  if (!ended) std::_Exit(11);
                });
                running.pass();
                std::thread ender(stop_threads);
                while (!exiting()) std::this_thread::yield();
                testing::wait_until_others_sleep();  // or have returned too early
                gate.open();
                host.join();
                ender.join();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ExitTest, ACommandThatHasNotBegunDoesNotHoldItsHostThread) {
  EXPECT_EXIT(testing::finish([] {
                Queue& queue = device(0).default_queue();
                testing::Gate running, gate;
                queue.submit("current", [&] {
                  running.open();
                  gate.pass();
                });
                running.pass();
                const std::uint64_t waits = Queue::host_waits();
                std::thread host([&] { queue.submit_and_wait("late", [] { std::_Exit(12); }); });
                while (Queue::host_waits() == waits) std::this_thread::yield();
                std::thread ender(stop_threads);
                host.join();
                gate.open();
                ender.join();
              }),
              ExitedWithCode(0), "");
}

class ForkTest : public testing::ChildTest {
 protected:
  static void use_device() {
    device(0).default_queue().submit("nothing", [] {});
    device(0).default_queue().synchronize();
  }
};

TEST_F(ForkTest, BeforeFirstUseIsClean) {
  EXPECT_EXIT(testing::finish([] {
                EXPECT_GE(device_count(), 1);
                EXPECT_FALSE(device_in_use());
                EXPECT_EQ(testing::exit_code_of_fork([] {
                            EXPECT_FALSE(in_bad_fork());
                            use_device();
                          }),
                          0);
                use_device();
                EXPECT_TRUE(device_in_use());
              }),
              ExitedWithCode(0), "");
}

TEST_F(ForkTest, AfterUseTheChildGetsAnErrorThatSaysWhatToDo) {
  EXPECT_EXIT(testing::finish([] {
                use_device();
                EXPECT_EQ(testing::exit_code_of_fork([] {
                            EXPECT_TRUE(in_bad_fork());
                            EXPECT_THAT([] { (void)device(0); },
                                        ThrowsMessage<Error>(HasSubstr("'spawn' start method")));
                          }),
                          0);
                EXPECT_FALSE(in_bad_fork());
                use_device();
              }),
              ExitedWithCode(0), "");
}

/// What a handler of another library maps in a child, before loom's handlers run.
struct OfOthers {
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  static inline void* wanted = nullptr;
  static inline volatile int* number = nullptr;

  static void map() {
    void* const mapped = mmap(wanted, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != wanted) return;
    number = static_cast<volatile int*>(mapped);
    *number = 42;
  }
};

TEST_F(ForkTest, WhatOthersHaveMappedInTheChildStaysTheirs) {
  EXPECT_EXIT(
      testing::finish([] {
        pthread_atfork(nullptr, nullptr, &OfOthers::map);
        Arena& arena = device(0).arena();
        auto* const segment = static_cast<std::byte*>(arena.map_segment(Arena::kGranularity));
        auto* const other = static_cast<std::byte*>(arena.map_segment(Arena::kGranularity));
        OfOthers::wanted = host_address(segment);
        EXPECT_EQ(testing::exit_code_of_fork([&] {
                    ASSERT_NE(OfOthers::number, nullptr);
                    EXPECT_EQ(*OfOthers::number, 42);
                    // The rest of the reservation is taken.
                    void* const place = host_address(other);
                    EXPECT_EQ(mmap(place, OfOthers::kBytes, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                              MAP_FAILED);
                  }),
                  0);
      }),
      ExitedWithCode(0), "");
}

TEST_F(ForkTest, QueuesOfTheParentGiveErrorsInTheChildAndNeverHang) {
  EXPECT_EXIT(testing::finish([] {
                Queue& queue = device(0).default_queue();
                testing::Gate gate;
                testing::submit_gate(queue, gate);
                QueueEvent event;
                event.record(queue);
                EXPECT_EQ(testing::exit_code_of_fork([&] {
                            EXPECT_THROW(queue.submit("nothing", [] {}), Error);
                            EXPECT_THROW(queue.synchronize(), Error);
                            EXPECT_THROW(event.synchronize(), Error);
                            EXPECT_THROW((void)event.query(), Error);
                            EXPECT_THROW(event.record(queue), Error);
                          }),
                          0);
                gate.open();
                queue.synchronize();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ForkTest, EveryLockThrowsInTheChildWhetherInheritedAsTakenOrNot) {
  EXPECT_EXIT(testing::finish([] {
                use_device();
                Mutex taken("taken", HeldInWaits::kAllowed);
                Mutex free("free");
                SharedMutex shared("shared", HeldInWaits::kAllowed);
                testing::Gate locked, unlock;
                std::jthread holder([&] {
                  MutexLock lock(taken);
                  ExclusiveLock alone(shared);
                  locked.pass();
                  unlock.pass();
                });
                locked.wait_for_arrivals();
                locked.open();
                unlock.wait_for_arrivals();
                const auto says_what_to_do = ThrowsMessage<Error>(HasSubstr("'spawn'"));
                EXPECT_EQ(testing::exit_code_of_fork([&] {
                            EXPECT_THAT([&] { MutexLock lock(taken); }, says_what_to_do);
                            EXPECT_THAT([&] { MutexLock lock(free); }, says_what_to_do);
                            EXPECT_THAT([&] { SharedLock lock(shared); }, says_what_to_do);
                            EXPECT_THAT([&] { ExclusiveLock lock(shared); }, says_what_to_do);
                            EXPECT_FALSE(taken.try_lock());
                          }),
                          0);
                unlock.open();
              }),
              ExitedWithCode(0), "");
}

// What has a lock in its destructor must not throw there.
TEST_F(ForkTest, OwnersOfLocksMayBeDestroyedInTheChild) {
  EXPECT_EXIT(testing::finish([] {
                use_device();
                auto buffer = std::make_unique<CommandBuffer>();
                buffer->append("held", [] {});
                auto arena = std::make_unique<Arena>(0, Arena::kGranularity);
                void* const segment = arena->map_segment(Arena::kGranularity);
                auto graph = std::make_shared<CommandGraph>();
                Queue& queue = device(0).default_queue();
                graph->begin_capture(queue);
                EXPECT_EQ(testing::exit_code_of_fork([&] {
                            EXPECT_THROW((void)arena->mapped(), Error);
                            arena->unmap_segment(segment, Arena::kGranularity);
                            arena.reset();
                            graph->invalidate("forked");
                            graph->end_capture();
                            graph.reset();
                            buffer.reset();
                          }),
                          0);
                graph->end_capture();
              }),
              ExitedWithCode(0), "");
}

TEST_F(ForkTest, QueuesAndCoresOfTheParentMayBeDestroyedInTheChild) {
  EXPECT_EXIT(testing::finish([] {
                auto cores = std::make_unique<Cores>(2);
                auto queue = std::make_unique<Queue>(QueueId{0, 0, 0}, *cores);
                queue->submit("grid", [&cores] { cores->run(4, [](std::int64_t) {}); });
                queue->synchronize();
                EXPECT_EQ(testing::exit_code_of_fork([&] {
                            queue.reset();
                            cores.reset();
                          }),
                          0);
              }),
              ExitedWithCode(0), "");
}

TEST_F(ForkTest, AChildOfTheChildGetsTheErrorToo) {
  EXPECT_EXIT(testing::finish([] {
                use_device();
                EXPECT_EQ(
                    testing::exit_code_of_fork([] {
                      EXPECT_EQ(
                          testing::exit_code_of_fork([] { EXPECT_THROW(use_device(), Error); }), 0);
                    }),
                    0);
              }),
              ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
