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
      .text(
          "): loom tensors are not readable by the host in isolated memory mode; copy to the host "
          "with .cpu()/.to('cpu'), or unset LOOM_MEMORY to use unified memory\n")
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

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  // Only the system's own reports of a bad access carry an address.
  const int device = info->si_code > 0 ? device_of_address(info->si_addr) : -1;
  if (device < 0) {
    pass_on(signal, info, context);
    return;
  }
  report(info->si_addr, device);
  restore_default(signal);
}

void install(int signal, struct sigaction& previous) {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  // First asked for, so that the handler never runs without knowing it.
  const bool installed =
      sigaction(signal, nullptr, &previous) == 0 && sigaction(signal, &action, nullptr) == 0;
  LOOM_CHECK(installed, "install_fault_handler(): expected to handle signal ", signal,
             ", got a refusal of the system");
}

}  // namespace

void set_fault_describer(FaultDescriber describer) noexcept {
  g_describer.store(describer, std::memory_order_relaxed);
}

void install_fault_handler() {
  static const bool installed = [] {
    install(SIGSEGV, g_previous_segv);
    install(SIGBUS, g_previous_bus);
    return true;
  }();
  (void)installed;
}

}  // namespace loom
