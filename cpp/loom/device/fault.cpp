// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/fault.h"

#include "loom/base/check.h"
#include "loom/device/address.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <signal.h>
#include <string_view>
#include <unistd.h>

namespace loom {
namespace {

// Relaxed: the handler reads whichever describer it finds.
std::atomic<FaultDescriber> g_describer{nullptr};
// What was installed before, one for each signal. Written before the handler can run.
struct sigaction g_previous_segv;
struct sigaction g_previous_bus;
// Relaxed, both: set by the thread that calls first, and by the only thread of a child.
std::atomic<bool> g_installed{false};
std::atomic<bool> g_in_child{false};

/// A message put together without allocating, as a signal handler must.
class Message {
 public:
  Message& text(std::string_view part) noexcept {
    const std::size_t count = std::min(part.size(), buffer_.size() - size_);
    std::memcpy(buffer_.data() + size_, part.data(), count);
    size_ += count;
    return *this;
  }

  Message& number(std::uintptr_t value, unsigned base) noexcept {
    std::array<char, 24> digits;
    std::size_t first = digits.size();
    do {
      digits[--first] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return text({digits.data() + first, digits.size() - first});
  }

  void write_to_stderr() const noexcept {
    // Nothing can be done if it fails.
    if (::write(STDERR_FILENO, buffer_.data(), size_) < 0) return;
  }

 private:
  std::array<char, 1024> buffer_;
  std::size_t size_ = 0;
};

void report(const void* address, int device) noexcept {
  std::array<char, 400> description;
  const FaultDescriber describer = g_describer.load(std::memory_order_relaxed);
  const bool known =
      describer != nullptr && describer(address, description.data(), description.size());
  Message()
      .text("loom: host code accessed device memory at 0x")
      .number(reinterpret_cast<std::uintptr_t>(address), 16)
      .text(" (device loom:")
      .number(static_cast<std::uintptr_t>(device), 10)
      .text(", ")
      .text(known ? std::string_view(description.data()) : "unknown allocation")
      .text(g_in_child.load(std::memory_order_relaxed)
                ? "): this process was forked after its parent had used loom, and has none of its "
                  "device memory; copy to the host with .cpu()/.to('cpu') before the fork, or use "
                  "the 'spawn' start method\n"
                : "): loom tensors are not readable by the host in isolated memory mode; copy to "
                  "the host with .cpu()/.to('cpu'), or unset LOOM_MEMORY to use unified memory\n")
      .write_to_stderr();
}

void restore_default(int signal) noexcept {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
}

void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  const struct sigaction& previous = signal == SIGBUS ? g_previous_bus : g_previous_segv;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    // A signal that somebody sent may be ignored; otherwise it is sent again, or the access is made
    // again when the handler returns, now with nobody to catch it.
    const bool sent = info->si_code <= 0;
    if (sent && previous.sa_handler == SIG_IGN) return;
    restore_default(signal);
    if (sent) raise(signal);  // delivered when the handler returns
  } else {
    previous.sa_handler(signal);
  }
}

/// The device whose memory it was, or -1. In a child the memory lacks behind both of its addresses.
int device_of_fault(const void* address) noexcept {
  const int device = device_of_address(address);
  if (device >= 0 || !g_in_child.load(std::memory_order_relaxed)) return device;
  return device_of_address(device_address(address));
}

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  // Only the system's own reports of a bad access carry an address.
  const int device = info->si_code > 0 ? device_of_fault(info->si_addr) : -1;
  if (device < 0) {
    pass_on(signal, info, context);
    return;
  }
  report(info->si_addr, device);
  restore_default(signal);
}

bool install(int signal, struct sigaction& previous) noexcept {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  // First asked for, so that the handler never runs without knowing it.
  return sigaction(signal, nullptr, &previous) == 0 && sigaction(signal, &action, nullptr) == 0;
}

bool install_both() noexcept {
  // No static object: a child may have inherited the lock of its construction as taken.
  if (g_installed.exchange(true, std::memory_order_relaxed)) return true;
  return install(SIGSEGV, g_previous_segv) && install(SIGBUS, g_previous_bus);
}

}  // namespace

void set_fault_describer(FaultDescriber describer) noexcept {
  g_describer.store(describer, std::memory_order_relaxed);
}

void install_fault_handler() {
  LOOM_CHECK(install_both(),
             "install_fault_handler(): expected to handle SIGSEGV and SIGBUS, got a refusal of the "
             "system");
}

void note_forked_child_to_fault_handler() noexcept {
  g_in_child.store(true, std::memory_order_relaxed);
  (void)install_both();
}

}  // namespace loom
