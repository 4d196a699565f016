// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/kernel_warnings.h"

#include "loom/base/mutex.h"
#include "loom/device/host_notice.h"
#include "loom/device/thread.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

namespace loom {
namespace {

// Relaxed: set before the device is used.
std::atomic<WarningGiver> g_giver{nullptr};

bool alike(const c10::Warning& a, const c10::Warning& b) {
  return a.type().index() == b.type().index() && a.msg() == b.msg();
}

/// Warnings that nobody has been given, oldest first, each once.
class Kept {
 public:
  void add(const c10::Warning& warning) {
    MutexLock lock(mutex_);
    const auto same = [&](const c10::Warning& other) { return alike(warning, other); };
    if (std::any_of(warnings_.begin(), warnings_.end(), same)) return;
    if (warnings_.size() < kMost) {
      warnings_.push_back(warning);
    } else {
      ++dropped_;
    }
  }

  std::optional<c10::Warning> take() {
    MutexLock lock(mutex_);
    if (warnings_.empty()) {
      if (dropped_ == 0) return std::nullopt;
      const std::size_t dropped = std::exchange(dropped_, 0);
      return c10::Warning(c10::UserWarning(), {__func__, __FILE__, __LINE__},
                          "loom: and " + std::to_string(dropped) + " more warnings of kernels",
                          /*verbatim=*/false);
    }
    c10::Warning first = std::move(warnings_.front());
    warnings_.pop_front();
    return first;
  }

  [[nodiscard]] bool empty() {
    MutexLock lock(mutex_);
    return warnings_.empty() && dropped_ == 0;
  }

 private:
  static constexpr std::size_t kMost = 64;

  Mutex mutex_;
  std::deque<c10::Warning> warnings_ LOOM_GUARDED_BY(mutex_);
  std::size_t dropped_ LOOM_GUARDED_BY(mutex_) = 0;
};

Kept& kept() {
  static auto* const instance = new Kept;  // leaked: commands may run until the process ends
  return *instance;
}

class Keeper final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (g_giver.load(std::memory_order_relaxed) == nullptr) return WarningHandler::process(warning);
    kept().add(warning);
    note_for_host();
  }
};

/// The calling thread's handler, if it is not the one that prints.
c10::WarningHandler* own_handler() {
  c10::WarningHandler* const handler = c10::WarningUtils::get_warning_handler();
  return typeid(*handler) == typeid(c10::WarningHandler) ? nullptr : handler;
}

}  // namespace

void set_warning_giver(WarningGiver giver) noexcept {
  g_giver.store(giver, std::memory_order_relaxed);
}

void give_kernel_warnings() {
  if (in_bad_fork()) return;  // they are the parent's
  c10::WarningHandler* const handler = own_handler();
  const WarningGiver giver = g_giver.load(std::memory_order_relaxed);
  while (const std::optional<c10::Warning> warning = kept().take()) {
    try {
      handler != nullptr ? handler->process(*warning) : giver(*warning);
    } catch (...) {
      if (!kept().empty()) note_for_host();
      throw;
    }
  }
}

c10::WarningHandler& kernel_warning_handler() noexcept {
  // Has no state: all threads may use it. Never destroyed: registering a destructor takes a lock
  // that a child would find locked for ever which is forked while a thread starts. In place, as a
  // thread that starts has nobody to tell that there is no memory.
  alignas(Keeper) static std::byte place[sizeof(Keeper)];
  static auto* const handler = new (place) Keeper;
  return *handler;
}

}  // namespace loom
