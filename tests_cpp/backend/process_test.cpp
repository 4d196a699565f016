// SPDX-License-Identifier: BSD-3-Clause
// The process around loom: fork, exit, bad settings. Every statement runs in a process of its own
// that starts from the beginning (death tests, threadsafe style).
#include "loom/backend/device_state.h"
#include "loom/backend/generator.h"
#include "loom/backend/host_allocator.h"
#include "loom/backend/library.h"
#include "loom/device/thread.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "backend/support.h"
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

namespace loom {
namespace {

using test::thrown_text;
using ::testing::ExitedWithCode;

/// Forks, runs `child` and gives its exit status.
template <class Child>
int status_of_fork(Child&& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    child();
    std::fflush(stderr);
    _exit(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void use_device() {
  current_queue().submit("use", [] {});
  current_queue().synchronize();
}

void print(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

TEST(ProcessDeathTest, ExitWithWorkInFlightIsClean) {
  EXPECT_EXIT(
      {
        static c10::DataPtr kept_until_the_end = allocate(4096, current_queue());
        static at::DataPtr pinned_until_the_end = host_allocator().allocate(4096);
        for (int i = 0; i < 1000; ++i) test::fill(current_queue(), kept_until_the_end.get(), i, 64);
        std::exit(0);
      },
      ExitedWithCode(0), "");
}

TEST(ProcessDeathTest, ExitBesideABusyStreamIsClean) {
  EXPECT_EXIT(
      {
        const auto gate = std::make_shared<testing::Gate>();
        current_queue().submit("wait for exit", [gate] {
          while (!exiting()) std::this_thread::yield();
        });
        std::exit(0);
      },
      ExitedWithCode(0), "");
}

TEST(ProcessDeathTest, ShutdownEndsWhatRunsAndDropsWhatIsQueued) {
  EXPECT_EXIT(
      {
        shutdown();  // nothing to stop
        std::exit(0);
      },
      ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        static std::atomic<int> ran{0};
        c10::DataPtr data = allocate(4096, current_queue());
        const auto arrived = std::make_shared<testing::Gate>();
        current_queue().submit("current", [arrived] {
          arrived->open();
          while (!exiting()) std::this_thread::yield();
          ++ran;
        });
        current_queue().submit("queued", [] { ran = 100; });
        arrived->pass();
        shutdown();
        if (ran != 1) std::exit(1);
        shutdown();
        current_queue().submit("late", [] { ran = 100; });
        current_queue().synchronize();
        data.clear();
        std::exit(ran == 1 ? 0 : 2);
      },
      ExitedWithCode(0), "");
}

TEST(ProcessDeathTest, ForkBeforeUseLeavesBothUsable) {
  EXPECT_EXIT(
      {
        (void)device_count();
        (void)at::detail::getPrivateUse1Hooks().isAvailable();
        const int child = status_of_fork(use_device);
        use_device();
        std::exit(child);
      },
      ExitedWithCode(0), "");
}

TEST(ProcessDeathTest, UseInAForkedChildIsAClearError) {
  EXPECT_EXIT(
      {
        c10::DataPtr data = allocate(4096, current_queue());
        use_device();
        const int child = status_of_fork([&] {
          print(thrown_text([] { (void)allocate(64, current_queue()); }));
          print(thrown_text([] { current_queue(1).submit("use", [] {}); }));
          print(thrown_text([] { at::detail::getPrivateUse1Hooks().init(); }));
          data.clear();  // as when Python collects what the parent had made
        });
        use_device();
        std::exit(child);
      },
      ExitedWithCode(0), "fork(.|\n)*fork(.|\n)*fork");
}

TEST(ProcessDeathTest, BadSettingsCountAsNoDeviceAndFailAtUse) {
  EXPECT_EXIT(
      {
        setenv("LOOM_DEVICES", "many", 1);
        if (device_count_or_zero() != 0) std::exit(1);
        if (at::accelerator::deviceCount() != 0) std::exit(2);
        if (at::detail::getPrivateUse1Hooks().isAvailable()) std::exit(3);
        print(thrown_text([] { (void)allocator().allocate(64); }));
        print(thrown_text([] { set_device(0); }));
        std::exit(0);
      },
      ExitedWithCode(0), "LOOM_DEVICES(.|\n)*LOOM_DEVICES");
}

TEST(ProcessDeathTest, BadAllocatorSettingsFailAtTheFirstAllocation) {
  EXPECT_EXIT(
      {
        setenv("PYTORCH_ALLOC_CONF", "no_such_key:1", 1);
        print(thrown_text<c10::Error>([] { (void)allocator().allocate(64); }));
        std::exit(0);
      },
      ExitedWithCode(0), "no_such_key");
}

TEST(ProcessDeathTest, LaunchBlockingRaisesAtTheLaunch) {
  EXPECT_EXIT(
      {
        setenv("LOOM_LAUNCH_BLOCKING", "1", 1);
        print(thrown_text<c10::IndexError>([] {
          current_queue().submit("aten::failing",
                                 [] { TORCH_CHECK_INDEX(false, "at the launch"); });
        }));
        std::exit(0);
      },
      ExitedWithCode(0), "at the launch .raised by 'aten::failing'.");
}

TEST(ProcessDeathTest, NothingStartsBeforeTheFirstUse) {
  EXPECT_EXIT(
      {
        (void)device_count();
        (void)at::detail::getPrivateUse1Hooks().isAvailable();
        manual_seed_all(1);
        set_device(1);
        std::exit(device_initialized(0) ? 1 : 0);
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace loom
