// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/fault.h"

#include "loom/device/address.h"
#include "loom/device/arena.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <gtest/gtest.h>

#include "support/child.h"
#include <cstdio>
#include <cstdlib>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loom {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

class FaultTest : public testing::ChildTest {
 protected:
  static int* map_isolated() {
    setenv("LOOM_MEMORY", "isolated", 1);
    static auto& arena = *new Arena(2, std::size_t{4} << 20);
    return static_cast<int*>(arena.map_segment(1));
  }

  static int read(const volatile int* address) { return *address; }
};

TEST_F(FaultTest, AHostReadOfADeviceAddressDiesWithAMessage) {
  EXPECT_EXIT(
      (void)read(map_isolated()), KilledBySignal(SIGSEGV),
      "loom: host code accessed device memory at 0x[0-9a-f]+ \\(device loom:2, unknown "
      "allocation\\): .*copy to the host with .cpu\\(\\)/.to\\('cpu'\\), or unset LOOM_MEMORY");
}

TEST_F(FaultTest, AHostWriteDiesAsWell) {
  EXPECT_EXIT(*static_cast<volatile int*>(map_isolated()) = 1, KilledBySignal(SIGSEGV),
              "device loom:2");
}

TEST_F(FaultTest, TheDescriberNamesTheAllocation) {
  EXPECT_EXIT(
      {
        set_fault_describer([](const void*, char* text, std::size_t size) noexcept {
          std::snprintf(text, size, "'weights', 64 bytes");
          return true;
        });
        (void)read(map_isolated());
      },
      KilledBySignal(SIGSEGV), "device loom:2, 'weights', 64 bytes\\)");
}

TEST_F(FaultTest, AFaultOnAWorkerDiesWithTheMessage) {
  EXPECT_EXIT(
      {
        int* const address = map_isolated();
        Cores cores(1);
        Queue queue(QueueId{0, 0, 0}, cores);
        queue.submit("stray", [address] { (void)read(address); });
        queue.synchronize();
      },
      KilledBySignal(SIGSEGV), "device loom:2");
}

TEST_F(FaultTest, AForkedChildDiesWithAMessageInEitherMode) {
  for (const char* mode : {"unified", "isolated"}) {
    EXPECT_EXIT(
        {
          setenv("LOOM_MEMORY", mode, 1);
          auto& arena = *new Arena(2, std::size_t{4} << 20);
          auto* const memory = static_cast<int*>(host_address(arena.map_segment(1)));
          *memory = 1;
          const pid_t child = fork();
          if (child == 0) std::_Exit(read(memory) == 1 ? 1 : 2);
          int status = 0;
          waitpid(child, &status, 0);
          std::_Exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        },
        ExitedWithCode(SIGSEGV),
        "loom:2, unknown allocation\\): this process was forked after .*spawn")
        << mode;
  }
}

TEST_F(FaultTest, NobodyElseGetsTheAddressesInAChild) {
  EXPECT_EXIT(
      {
        setenv("LOOM_MEMORY", "unified", 1);
        auto& arena = *new Arena(2, std::size_t{4} << 20);
        void* const memory = arena.map_segment(1);
        const pid_t child = fork();
        if (child == 0) {
          void* const mapped = mmap(memory, 4096, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // a hint
          std::_Exit(mapped == memory ? 1 : 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        std::_Exit(WEXITSTATUS(status));
      },
      ExitedWithCode(0), "");
}

void* inaccessible_page() {
  return mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

TEST_F(FaultTest, OtherFaultsGoToTheHandlerThatWasThereBefore) {
  EXPECT_EXIT(
      {
        struct sigaction action = {};
        action.sa_handler = [](int) { std::_Exit(21); };
        sigaction(SIGSEGV, &action, nullptr);
        (void)map_isolated();
        (void)read(static_cast<int*>(inaccessible_page()));
      },
      ExitedWithCode(21), "");
}

TEST_F(FaultTest, OtherFaultsGoToAnEarlierHandlerWithItsArguments) {
  EXPECT_EXIT(
      {
        static void* const page = inaccessible_page();
        struct sigaction action = {};
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = [](int, siginfo_t* info, void*) {
          std::_Exit(info->si_addr == page ? 22 : 23);
        };
        sigaction(SIGSEGV, &action, nullptr);
        (void)map_isolated();
        (void)read(static_cast<int*>(page));
      },
      ExitedWithCode(22), "");
}

TEST_F(FaultTest, OtherFaultsWithoutAHandlerKillAsUsual) {
#if defined(LOOM_TEST_EMULATOR)
  constexpr const char* kSilence = "^qemu: [^\n]*\n$";  // which says so itself
#else
  constexpr const char* kSilence = "^$";
#endif
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_DFL);
        (void)map_isolated();
        (void)read(static_cast<int*>(inaccessible_page()));
      },
      KilledBySignal(SIGSEGV), kSilence);
}

TEST_F(FaultTest, ASignalSentByAnotherProcessIsNoFault) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) { std::_Exit(24); });
        (void)map_isolated();
        raise(SIGSEGV);
      },
      ExitedWithCode(24), "^$");
}

}  // namespace
}  // namespace loom
